package simnet

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// testRTT is the round trip when none is asked for: long beside what a
// machine takes to compute, short beside what a lookup may take.
const testRTT = 20 * time.Millisecond

// TestDelay is about the service a round trip away from everybody else. Without
// -rtt it runs in a namespace of its own, beside TestSimnet's.
func TestDelay(t *testing.T) {
	reason := testbed.NoNamespaces()
	if reason == nil {
		reason = noTun()
	}
	switch {
	case reason != nil && *runs > 1:
		t.Fatal(reason) // somebody waits for the times
	case reason != nil:
		t.Skip(reason)
	case *rtt == 0:
		t.Parallel()
		cmd := testbed.Namespaced(os.Args[0], "-test.run=^TestDelay$", "-test.v", "-rtt="+testRTT.String())
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDelay ") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	n := newInternet(t)
	if *runs > 1 {
		writeTimes(t, n) // and nothing else beside it
		return
	}
	for _, a := range n.hosts["both.example.com"].addrs {
		proveDelay(t, n.far, netip.MustParseAddr(a))
	}
	r := startRunner(t, n)
	t.Run("each question once", func(t *testing.T) { asksOnce(t, n.far, r) })
	t.Run("round trips", func(t *testing.T) { takesItsTrips(t, r) })
}

// proveDelay measures connections and datagrams to a host: none is there
// before a round trip, and the datagrams come back in their order.
func proveDelay(t *testing.T, f *far, host netip.Addr) {
	t.Helper()
	early := func(what string, begun time.Time) {
		if took := time.Since(begun); took < *rtt {
			t.Errorf("%s %s took %s, want a round trip of %s at least", what, host, took, *rtt)
		}
	}
	for range 9 {
		begun := time.Now()
		conn, err := f.dial(t.Context(), "tcp", netip.AddrPortFrom(host, 443).String())
		if err != nil {
			t.Fatal(err)
		}
		early("a connection to", begun)
		conn.Close()
	}
	conn := echo(t, f, host)
	const burst = 50 // fits into any socket's buffer
	begun := time.Now()
	for i := range burst {
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 8)
	for i := range burst {
		if _, err := conn.Read(b); err != nil {
			t.Fatalf("datagram %d of %d is lost: %v", i, burst, err)
		}
		if i == 0 {
			early("an echo from", begun)
		}
		if got := binary.BigEndian.Uint64(b); got != uint64(i) {
			t.Fatalf("datagram %d came where %d was due", got, i)
		}
	}
}

// echo connects from there to an echo server over UDP at a host.
func echo(t *testing.T, f *far, host netip.Addr) net.Conn {
	t.Helper()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", netip.AddrPortFrom(host, 7).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		b := make([]byte, 1<<10)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(b[:n], from) // a lost one fails the test
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := f.dial(ctx, "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// asksOnce counts what lookups send out: the children of a bundle share one
// resolution, and those of uptime-check one connection. A registry has a
// resolution of its own. Only the first resolver counts: another is asked as
// well where that one is slow.
func asksOnce(t *testing.T, f *far, r *runner) {
	first := netip.MustParseAddr(resolverAddrs()[0])
	registry := []string{"rdap.registry.net. A", "rdap.registry.net. AAAA"}
	both := []string{"example.com. A", "example.com. AAAA"}
	all := append(slices.Clone(both), registry...)
	for _, c := range []struct {
		op          catalog.Operation
		more        string
		questions   []string
		connections int
	}{
		{catalog.UptimeCheck(), "", both, 1},
		{catalog.HostIntel(), "", all, 2},
		{catalog.HostIntel(), "&dns_type=AAAA", all, 2},
		{catalog.HostIntel(), "&dns_type=MX", append([]string{"example.com. MX"}, all...), 2},
		{catalog.DNS(), "", both[:1], 0},
		{catalog.SSLCheck(), "", both, 1},
		{catalog.Headers(), "", both, 1},
		{catalog.ResolveRedirect(), "", both, 1},
		{catalog.Whois(), "", registry, 1},
	} {
		f.out.flows(first)
		reply, err := r.buy(t.Context(), c.op.Path+"?domain=example.com"+c.more)
		if err != nil || reply.Status != 200 {
			t.Fatalf("%s: %d %v: %.300s", c.op.Slug, reply.Status, err, reply.Body)
		}
		questions, connections := f.out.flows(first)
		if slices.Sort(c.questions); !slices.Equal(questions, c.questions) {
			t.Errorf("%s%s asked %v, want %v", c.op.Slug, c.more, questions, c.questions)
		}
		if len(connections) != c.connections {
			t.Errorf("%s%s connected to %v, want %d", c.op.Slug, c.more, connections, c.connections)
		}
	}
}
