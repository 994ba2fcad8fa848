package e2e

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// table is every case. A name is unique.
func table(tb testing.TB) []scenario {
	tb.Helper()
	var all []scenario
	for _, op := range catalog.All() {
		cases := unpaidCases(op)
		if answeredHere(op) {
			cases = paymentCases(op)
		}
		for _, s := range cases {
			s.name = op.Slug + ": " + s.name
			all = append(all, s)
		}
	}
	for prefix, cases := range map[string][]scenario{
		"ping": append(pingCases(), refusalCases()...), "dns": dnsCases(), "tool": toolCases(), "free": freeCases(),
	} {
		for _, s := range cases {
			s.name = prefix + ": " + s.name
			all = append(all, s)
		}
	}
	names := map[string]bool{}
	for _, s := range all {
		if names[s.name] {
			tb.Errorf("two cases are called %q", s.name)
		}
		names[s.name] = true
	}
	return all
}

// answeredHere says whether an operation can be answered on the loopback
// interface. The others connect to the host that they are asked about, and the
// guard lets nothing connect to this machine: they are bought in infra/simnet.
func answeredHere(op catalog.Operation) bool { return op.Slug == "dns" || op.Slug == "ping" }

// everywhere plays something in each world, in a deployment of its own.
func everywhere(t *testing.T, l *lab, play func(*testing.T, *deployment)) {
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			play(t, w.start(t, l)(t, l.setup()))
		})
	}
}

// TestService plays the table in every world. A quick run plays it over the
// local runner, and what that cannot do over the handlers.
func TestService(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cases := table(t)
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			open := w.start(t, l)
			shared := open(t, l.setup())
			for _, s := range cases {
				if !w.can.has(s.needs) || testing.Short() && w.name == "handlers" && local().can.has(s.needs) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					if s.slow != "" {
						verifyOnly(t, s.slow)
					}
					fairly(t, func(tb testing.TB, p *pace) {
						d := shared
						if s.own != nil {
							set := l.setup()
							s.own(tb, l, &set)
							d = open(tb, set)
						}
						play(tb, p, l, d, s)
					})
				})
			}
		})
	}
}
