package simnet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSimnet plays the tables to the local runner and to the functions as they are deployed, then
// looks at what they covered, and at who was connected to.
func TestSimnet(t *testing.T) {
	if err := testbed.NoNamespaces(); err != nil || testing.Short() {
		t.Skip("played in make verify: ", err)
	}
	n := newInternet(t)
	if *shell {
		openShell(t, n)
		return
	}
	own := proveTap(t, n.tap)
	r := startRunner(t, n)
	seen := &observed{facts: map[string]bool{}, api: testbed.Must(clients.FetchOpenAPI(t.Context(), r.client(t).HTTP, r.url))}
	missed := false
	play := func(t *testing.T, name string, s *runner, rows []row) {
		done := 0
		t.Run(name, func(t *testing.T) {
			played := make(chan struct{}, len(rows))
			t.Cleanup(func() { done = len(played) })
			for _, c := range rows {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					seen.play(t, s, c)
					played <- struct{}{}
				})
			}
		})
		missed = missed || done < len(rows)
	}
	names := map[string]bool{}
	for _, r := range tableRows() {
		if names[r.String()] {
			t.Errorf("two rows are called %q", r)
		}
		names[r.String()] = true
	}
	play(t, "table", r, tableRows())
	play(t, "addresses", r, specialRows())
	t.Run("beside each other", func(t *testing.T) {
		t.Run("deployed", func(t *testing.T) {
			t.Parallel()
			n.forget()
			play(t, "table", deploy(t, n), tableRows())
		})
		t.Run("without a bootstrap", func(t *testing.T) {
			t.Parallel()
			nowhere := startRunner(t, n, "RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/")
			seen.play(t, nowhere, asks("whois")("example.com", fails(lookup.BootstrapUnavailable)))
			seen.play(t, nowhere, asks("host-intel")("example.com", want{"whois.error.code": lookup.BootstrapUnavailable, "ssl.expired": false}))
		})
	})
	t.Run("covers the spec", func(t *testing.T) {
		if missed {
			t.Skip("not every row was played")
		}
		covered(t, seen)
	})
	t.Run("nothing else was connected to", func(t *testing.T) { onlyPublic(t, n, own, missed) })
	t.Run("nothing was left behind", func(t *testing.T) { nothingLeft(t, r) })
}

// covered wants every code of every operation, every verdict, and every nullable field both null and set, to have been answered.
func covered(t *testing.T, seen *observed) {
	saw := func(parts ...any) {
		if fact := fmt.Sprint(parts...); !seen.facts[fact] {
			t.Errorf("it was never seen that %s", fact)
		}
	}
	// bothWays is for the operations' own fields; bundles have those of their children.
	var bothWays func(where string, fields []catalog.Field)
	bothWays = func(where string, fields []catalog.Field) {
		for _, f := range fields {
			path := where + "." + f.Name
			if f.Nullable {
				saw(path, " null: ", true)
				saw(path, " null: ", false)
			}
			bothWays(path, f.Fields)
			if f.Type == "array" {
				for _, item := range f.Items {
					bothWays(path, item.Fields)
				}
			}
		}
	}
	for _, op := range catalog.All() {
		if op.Kind == catalog.SmokeTest {
			continue
		}
		for _, code := range op.Errors {
			// No request can bring the bundles' time-outs about from outside: the children end
			// half a second before. That there is no room is in the tests of pkg/service.
			if code != lookup.HostIntelTimeout && code != lookup.UptimeCheckTimeout && code != fault.Overloaded {
				saw(op.Slug, " answered ", code)
			}
		}
		bothWays(op.Slug, op.Fields)
	}
	for _, v := range []bundle.Verdict{bundle.Up, bundle.Degraded, bundle.Down} {
		saw(v)
	}
}

// onlyPublic wants nothing to have been sent but to the hosts that may be connected to, and to this
// test's own servers on 127.0.0.1.
func onlyPublic(t *testing.T, n *internet, own []netip.AddrPort, missed bool) {
	if lost := n.tap.dropped(t); lost > 0 {
		t.Errorf("the tap missed %d packets", lost)
	}
	resolvers := map[netip.Addr]bool{}
	for _, a := range resolverAddrs() {
		resolvers[netip.MustParseAddr(a)] = true
	}
	ours := netip.MustParseAddr("127.0.0.1")
	https := 0
	for to, packet := range n.tap.all() {
		switch a := to.Addr(); {
		case to == own[0] || to == own[1]:
		case a == ours && to.Port() >= 1024: // runner, facilitator, bootstrap
		case a == ours && to.Port() == 9: // the bootstrap that is not there
		case resolvers[a] && to.Port() == 53:
		case n.public[to]:
			https++
		case to.Port() >= 32768 && (resolvers[a] || a.IsLoopback()): // answers over UDP
		default:
			t.Errorf("somebody sent to %s: %q", to, packet)
		}
	}
	if https < 50 && !missed {
		t.Errorf("only %d hosts were connected to: the tap is blind", https)
	}
}
