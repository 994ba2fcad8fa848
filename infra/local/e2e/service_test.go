package e2e

import (
	"cmp"
	"os"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
)

func table() []scenario {
	var all []scenario
	add := func(prefix string, cases []scenario) {
		for _, s := range cases {
			s.name = prefix + ": " + s.name
			all = append(all, s)
		}
	}
	for _, op := range catalog.All() {
		add(op.Slug, unpaidCases(op))
		if answeredHere(op) {
			add(op.Slug, paymentCases(op))
		}
	}
	add("ping", append(pingCases(), refusalCases()...))
	add("dns", dnsCases())
	add("tool", toolCases())
	add("free", freeCases())
	return all
}

// answeredHere says whether an operation can be answered on the loopback
// interface. The others connect to the host that they are asked about, and the
// guard lets nothing connect to this machine: they are bought in infra/simnet.
func answeredHere(op catalog.Operation) bool { return op.Slug == "dns" || op.Slug == "ping" }

// TestService plays the table in every world. A quick run plays it over the local
// runner; what that cannot do, the tests of pkg/service do over the handlers.
func TestService(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cases := table()
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			open := w.start(t)
			shared := open(t, l, l.setup())
			for _, s := range cases {
				if s.harms && w.fixed {
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
							s.own(tb, &set)
							d = open(tb, l, set)
						}
						play(tb, p, l, d, s)
					})
				})
			}
		})
	}
}

// The table must hold every code that an operation lists, of those that can be answered here.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var note func(path string, steps []step)
	note = func(path string, steps []step) {
		for _, st := range steps {
			path = cmp.Or(st.path, path)
			if op, ok := opOf(path); ok && st.want != nil {
				seen[op.Slug+" "+string(st.want.code)] = true
			}
			note(path, st.inner)
		}
	}
	for _, s := range table() {
		note("", s.steps)
	}
	for _, op := range catalog.All() {
		for _, code := range append(op.AllErrors(), "") {
			if answeredHere(op) && !seen[op.Slug+" "+string(code)] {
				t.Errorf("%s: no case answers %q", op.Slug, code)
			}
		}
	}
}

// root is the module, seen from this package.
const root = "../../.."

func TestMain(m *testing.M) {
	// Two cases at a time, which is what two cores would get, would take minutes.
	testbed.Parallel(12)
	os.Exit(testbed.Main(m))
}

// localBinary is the local runner, watched by the race detector. A quick run does
// without it, and so without a C compiler; and so does a crowd: the race detector makes
// a signature fifteen times as dear, and a thousand of them at once on two cores then
// wait for the processor until their time is up.
func localBinary(tb testing.TB, crowd bool) string {
	if testing.Short() || crowd {
		return testbed.Program(tb, testbed.LocalRunner)
	}
	return testbed.Watched(tb, testbed.LocalRunner)
}
