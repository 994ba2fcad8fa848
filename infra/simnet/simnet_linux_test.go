package simnet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/uptime"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestSimnet plays the tables to the local runner and to the functions as they
// are deployed, then looks at what they covered, at who was connected to, and
// at what other programs say.
func TestSimnet(t *testing.T) {
	if noNamespace != "" {
		t.Skip(noNamespace)
	}
	n := newInternet(t)
	if *shell {
		openShell(t, n)
		return
	}
	own := proveTap(t, n.tap)
	r := startRunner(t, n)
	before := holds(t, r.process.Cmd.Process.Pid)
	seen := &observed{facts: map[string]bool{}, api: r.description(t)}
	missed := false
	play := func(t *testing.T, name string, s seller, rows []row) {
		done := 0
		t.Run(name, func(t *testing.T) {
			played := make(chan struct{}, len(rows))
			t.Cleanup(func() { done = len(played) })
			playAll(t, s, seen, rows, played)
		})
		missed = missed || done < len(rows)
	}
	play(t, "table", r, tableRows(t))
	play(t, "addresses", r, corpusRows())
	play(t, "names", r, nameRows(t))
	play(t, "corpora", r, corporaRows())
	t.Run("beside each other", func(t *testing.T) {
		t.Run("deployed", func(t *testing.T) {
			t.Parallel()
			n.forget()
			d := deploy(t, n)
			play(t, "table", d, tableRows(t))
			d.endedWell(t)
		})
		t.Run("without a bootstrap", func(t *testing.T) {
			t.Parallel()
			nowhere := startRunner(t, n, "RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/")
			playOne(t, nowhere, seen, row{op: "whois", domain: "example.com", code: fault.BootstrapUnavailable})
			playOne(t, nowhere, seen, row{op: "host-intel", domain: "example.com", want: want{"whois.error.code": fault.BootstrapUnavailable, "ssl.expired": false}})
		})
		t.Run("overloaded", func(t *testing.T) {
			t.Parallel()
			overload(t, startRunner(t, n, "CONCURRENCY_SINGLE=1", "CONCURRENCY_BUNDLE=1"), seen)
		})
		t.Run("as described", func(t *testing.T) {
			t.Parallel()
			asDescribed(t, n, r, seen)
		})
	})
	t.Run("covers the spec", func(t *testing.T) {
		if missed {
			t.Skip("not every row was played")
		}
		covered(t, seen)
	})
	t.Run("nothing else was connected to", func(t *testing.T) { onlyPublic(t, n, own, missed) })
	// From here on the programs that we compare with connect to anything.
	t.Run("agrees", func(t *testing.T) { agrees(t, n, r) })
	t.Run("nothing was left behind", func(t *testing.T) { nothingLeft(t, r, before) })
}

// tableRows are the tables of what the operations answer; no two alike.
func tableRows(t *testing.T) []row {
	t.Helper()
	var all []row
	for _, part := range [][]row{dnsRows(), sslRows(), certificateRows(), headersRows(), answerRows(), redirectRows(), locationRows(), whoisRows(), registryRows(), quirkRows(), bundleRows(), guardRows()} {
		all = append(all, part...)
	}
	names, asked := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		if names[r.String()] {
			t.Errorf("two rows are called %q", r)
		}
		names[r.String()], asked[r.domain] = true, true
	}
	for _, h := range slices.Concat(trickHosts(), certificateHosts(), answerHosts(), locationHosts()) {
		if !asked[h.name] {
			t.Errorf("no row asks for %s", h.name)
		}
	}
	return all
}

// nameRows are the hostile names that the guard's own test refuses, asked for
// through the whole service: one corpus, two judges. Those that it computes are
// not sent.
func nameRows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "pkg", "guard", "testdata", "hostile.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []row
	for line := range strings.Lines(string(text)) {
		_, quoted, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !found {
			continue // a comment
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ops := catalog.All() // ping, the last, takes no domain
		op := ops[len(all)%(len(ops)-1)]
		all = append(all, row{name: fmt.Sprintf("%d %.60q", len(all), value), op: op.Slug, domain: value, code: fault.InvalidDomain})
	}
	if len(all) < 300 {
		t.Errorf("the corpus has only %d names", len(all))
	}
	return all
}

// seller answers paid requests.
type seller interface {
	buy(ctx context.Context, path string) (x402test.Reply, error)
}

func playAll(t *testing.T, r seller, seen *observed, rows []row, played chan<- struct{}) {
	t.Helper()
	for _, c := range rows {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			playOne(t, r, seen, c)
			played <- struct{}{}
		})
	}
}

func playOne(t *testing.T, r seller, seen *observed, c row) {
	t.Helper()
	op := operation(t, c.op)
	reply, err := buyUntil(t, r, op.Path+c.query(), c.met)
	if err != nil {
		t.Fatal(err)
	}
	seen.check(t, op, c, reply)
	seen.values(reply.Body)
}

func operation(t *testing.T, slug string) catalog.Operation {
	t.Helper()
	for _, op := range catalog.All() {
		if op.Slug == slug {
			return op
		}
	}
	t.Fatalf("there is no operation %s", slug)
	return catalog.Operation{}
}

// overload sends every operation two requests at once that both would wait
// for a silent host, where there is room for one.
func overload(t *testing.T, r *runner, seen *observed) {
	t.Helper()
	for _, op := range catalog.All() {
		if !op.Can(fault.Overloaded) {
			continue
		}
		t.Run(op.Slug, func(t *testing.T) {
			t.Parallel()
			domain := silent(op)
			codes := make(chan string, 2)
			for range 2 {
				go func() {
					reply, err := r.buy(t.Context(), op.Path+"?domain="+domain)
					seen.described(t, op, reply)
					codes <- fmt.Sprintf("%d %v %s", reply.Status, err, reply.Body)
				}()
			}
			full := 0
			for range 2 {
				if c := <-codes; strings.HasPrefix(c, "503 <nil>") && strings.Contains(c, `"overloaded"`) {
					full++
				}
			}
			if full != 1 {
				t.Errorf("%d of two were answered overloaded, want 1", full)
				return
			}
			seen.note("%s answered %s", op.Slug, fault.Overloaded)
		})
	}
}

// notHere are codes that no request can bring about from outside.
func notHere() map[fault.Code]string {
	return map[fault.Code]string{
		fault.HostIntelTimeout:   "the children end half a second before the bundle does",
		fault.UptimeCheckTimeout: "the children end half a second before the bundle does",
	}
}

// covered wants every code of every operation, every stop reason, every
// verdict, and every nullable field both null and set, to have been answered.
func covered(t *testing.T, seen *observed) {
	for _, op := range catalog.All() {
		if op.Kind == catalog.SmokeTest {
			continue
		}
		for _, code := range op.Errors {
			if _, never := notHere()[code]; !never && !seen.saw("%s answered %s", op.Slug, code) {
				t.Errorf("%s never answered %s", op.Slug, code)
			}
		}
		bothWays(t, seen, op.Slug, op.Fields)
	}
	for _, s := range redirect.StopReasons() {
		if !seen.saw("stop_reason %s", s) {
			t.Errorf("no trace stopped with %s", s)
		}
	}
	for _, v := range []uptime.Verdict{uptime.Up, uptime.Degraded, uptime.Down} {
		if !seen.saw("verdict %s", v) {
			t.Errorf("no verdict was %s", v)
		}
	}
}

// bothWays is for the operations' own fields; bundles have those of their
// children.
func bothWays(t *testing.T, seen *observed, where string, fields []catalog.Field) {
	t.Helper()
	for _, f := range fields {
		path := where + "." + f.Name
		if f.Nullable && (!seen.saw("%s is null", path) || !seen.saw("%s is set", path)) {
			t.Errorf("%s was not both null and set", path)
		}
		bothWays(t, seen, path, f.Fields)
		if f.Type == "array" {
			for _, item := range f.Items {
				bothWays(t, seen, path, item.Fields)
			}
		}
	}
}

// registryPorts are the places of RDAP servers on other ports than 443, which
// the bootstrap file may name.
func (n *internet) registryPorts() map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{netip.MustParseAddrPort(closedAddr + ":8443"): true}
	for _, h := range n.hosts {
		if h.plain == nil {
			continue
		}
		for _, a := range h.addrs {
			out[netip.AddrPortFrom(netip.MustParseAddr(a), 80)] = true
		}
	}
	return out
}

// onlyPublic wants no connection and no datagram to have gone anywhere but to
// the hosts that may be connected to, each on the one port it is for, and to
// this test's own servers on 127.0.0.1.
func onlyPublic(t *testing.T, n *internet, own []netip.AddrPort, missed bool) {
	t.Helper()
	if lost := n.tap.dropped(t); lost > 0 {
		t.Errorf("the tap missed %d packets", lost)
	}
	public := n.public()
	resolvers := map[netip.Addr]bool{}
	for _, a := range resolverAddrs() {
		resolvers[netip.MustParseAddr(a)] = true
	}
	registry := n.registryPorts()
	ours := netip.MustParseAddr("127.0.0.1")
	https := 0
	for to := range n.tap.all() {
		switch a := to.Addr(); {
		case to == own[0] || to == own[1]:
		case a == ours && to.Port() >= 1024: // runner, facilitator, bootstrap
		case a == ours && to.Port() == 9: // the bootstrap that is not there
		case resolvers[a] && to.Port() == 53:
		case public[a] && to.Port() == 443:
			https++
		case registry[to]:
		case to.Port() >= 32768 && (resolvers[a] || a.IsLoopback()): // answers over UDP
		default:
			t.Errorf("somebody sent to %s", to)
		}
	}
	if https < 50 && !missed {
		t.Errorf("only %d hosts were connected to: the tap is blind", https)
	}
}
