package guard_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// zone is a Resolver that knows the names in the map. If the addresses of a name are nil, it
// never answers for that name.
type zone map[string][]netip.Addr

func (z zone) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	all, ok := z[name]
	switch {
	case ok && all == nil:
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %v", guard.ErrResolvers, ctx.Err())
	case !ok:
		return nil, lookup.Fault(lookup.NXDomain, nil)
	}
	return all, nil
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

func TestResolve(t *testing.T) {
	t.Parallel()
	known := zone{
		"public.test.com":  addrs("93.184.216.34", "2606:4700::1"),
		"private.test.com": addrs("10.0.0.1"),
		"mixed.test.com":   addrs("93.184.216.34", "8.8.8.8", "10.0.0.1"),
		"mixed6.test.com":  addrs("93.184.216.34", "fd00::1"),
		"mapped.test.com":  addrs("93.184.216.34", "::ffff:93.184.216.34"),
		"late.test.com":    addrs(append(many("93.184.216.%d", 200), "127.0.0.1")...),
	}
	d := &guard.Dialer{Resolver: known}
	if _, err := d.Resolve(t.Context(), "none.test.com"); testbed.Code(err) != lookup.NXDomain {
		t.Errorf("no such name: %v", err)
	}
	for name := range known {
		t.Run(name, func(t *testing.T) {
			target, err := d.Resolve(t.Context(), name)
			if public := name == "public.test.com"; public && (err != nil || target.Name != name || len(target.Addrs) != 2) ||
				!public && testbed.Code(err) != lookup.BlockedAddress {
				t.Errorf("%s: %+v, %v", name, target, err)
			}
		})
	}
}

func many(format string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

// TestResolveLeavesTime checks that, if a resolver hangs, Resolve gives up after half of the
// time that its context allows.
func TestResolveLeavesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &guard.Dialer{Resolver: zone{"a.test.com": nil}}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := d.Resolve(ctx, "a.test.com")
		if !errors.Is(err, guard.ErrResolvers) || time.Since(begin) != 4*time.Second {
			t.Errorf("%v after %v, want ErrResolvers after 4s", err, time.Since(begin))
		}
	})
}

func TestDial(t *testing.T) {
	twenty := many("1.1.1.%d", 20)
	each := func(pause time.Duration, addrs []string) string { // the expected dials, with this pause between them
		var all []string
		for i, a := range addrs {
			all = append(all, fmt.Sprintf("%s:443 at %v", a, time.Duration(i)*pause))
		}
		return strings.Join(all, ", ")
	}
	testbed.Each(t, map[string]dialCase{
		"first":                  {addrs: "1.1.1.1 8.8.8.8", accepting: "1.1.1.1", wantDials: "1.1.1.1:443 at 0s"},
		"IPv4 first":             {addrs: "2606:4700::1 1.1.1.1", accepting: "2606:4700::1", wantDials: "1.1.1.1:443 at 0s, [2606:4700::1]:443 at 0s"},
		"no route":               {addrs: "2606:4700::1 1.1.1.1", unrouted: "IPv6", wantDials: "1.1.1.1:443 at 0s", wantCode: lookup.ConnectFailed, wantText: "connection refused (addresses tried: 1). This service has no route to the host's addresses of IPv6."},
		"no route, IPv4 is up":   {addrs: "2606:4700::1 1.1.1.1", unrouted: "IPv6", accepting: "1.1.1.1", wantDials: "1.1.1.1:443 at 0s"},
		"IPv6 only, no route":    {addrs: "2606:4700::1", unrouted: "IPv6", wantCode: lookup.ConnectFailed, wantErr: guard.ErrNoRoute, wantText: "no route to IPv6, and the host has no other address"},
		"IPv4 only, no route":    {addrs: "1.1.1.1 8.8.8.8", unrouted: "IPv4", wantCode: lookup.ConnectFailed, wantErr: guard.ErrNoRoute, wantText: "no route to IPv4,"},
		"no route at all":        {addrs: "1.1.1.1 2606:4700::1", unrouted: "IPv4 IPv6", wantCode: lookup.ConnectFailed, wantErr: guard.ErrNoRoute, wantText: "no route to IPv4 or IPv6,"},
		"no place taken by IPv4": {addrs: strings.Join(twenty, " ") + " 2606:4700::1", unrouted: "IPv4", accepting: "2606:4700::1", wantDials: "[2606:4700::1]:443 at 0s"},
		"IPv6 only":              {addrs: "2606:4700::1", accepting: "2606:4700::1", wantDials: "[2606:4700::1]:443 at 0s"},
		"second beside a hole":   {addrs: "1.1.1.1 8.8.8.8", silent: "1.1.1.1", accepting: "8.8.8.8", wantDials: "1.1.1.1:443 at 0s, 8.8.8.8:443 at 250ms", wantTime: 250 * time.Millisecond},
		"at once after a refusal": {addrs: "1.1.1.1 8.8.8.8 9.9.9.9", silent: "8.8.8.8", accepting: "9.9.9.9",
			wantDials: "1.1.1.1:443 at 0s, 8.8.8.8:443 at 0s, 9.9.9.9:443 at 250ms", wantTime: 250 * time.Millisecond},
		"the pause begins with the last attempt": {addrs: "1.1.1.1 8.8.8.8 9.9.9.9 9.9.9.8", silent: "1.1.1.1 9.9.9.9", accepting: "9.9.9.8",
			wantDials: "1.1.1.1:443 at 0s, 8.8.8.8:443 at 250ms, 9.9.9.9:443 at 250ms, 9.9.9.8:443 at 500ms", wantTime: 500 * time.Millisecond},
		"families in turn": {addrs: "1.1.1.1 8.8.8.8 9.9.9.9 2606:4700::1 2606:4700::2", silent: "1.1.1.1 8.8.8.8 2606:4700::1", accepting: "2606:4700::2",
			wantDials: "1.1.1.1:443 at 0s, [2606:4700::1]:443 at 250ms, 8.8.8.8:443 at 500ms, [2606:4700::2]:443 at 750ms", wantTime: 750 * time.Millisecond},
		"a whole family dead": {addrs: strings.Join(twenty[:8], " ") + " 2606:4700::1", silent: strings.Join(twenty, " "), accepting: "2606:4700::1",
			wantDials: "1.1.1.0:443 at 0s, [2606:4700::1]:443 at 250ms", wantTime: 250 * time.Millisecond},
		"slow, and the next is not quicker": {addrs: "1.1.1.1 8.8.8.8", slow: "1.1.1.1", silent: "8.8.8.8", accepting: "1.1.1.1",
			wantDials: "1.1.1.1:443 at 0s, 8.8.8.8:443 at 250ms", wantTime: 400 * time.Millisecond},
		"eight of nine dead": {addrs: strings.Join(twenty[:9], " "), silent: strings.Join(twenty[:8], " "), accepting: twenty[8],
			wantDials: each(250*time.Millisecond, twenty[:9]), wantTime: 2 * time.Second},
		"black hole": {addrs: "1.1.1.1", silent: "1.1.1.1", wantDials: "1.1.1.1:443 at 0s", wantCode: lookup.ConnectFailed, wantText: "timed out (addresses tried: 1)", wantTime: 6 * time.Second},
		"both ways": {addrs: "1.1.1.1 8.8.8.8", silent: "1.1.1.1", wantDials: "1.1.1.1:443 at 0s, 8.8.8.8:443 at 250ms",
			wantCode: lookup.ConnectFailed, wantText: "timed out, connection refused (addresses tried: 2)", wantTime: 6 * time.Second},
		"doubles count once":              {addrs: "1.1.1.1 1.1.1.1", wantDials: "1.1.1.1:443 at 0s", wantCode: lookup.ConnectFailed, wantText: "tried: 1)."},
		"at most sixteen":                 {addrs: strings.Join(twenty, " "), wantDials: each(0, twenty[:16]), wantCode: lookup.ConnectFailed, wantText: "tried: 16)"},
		"made by hand":                    {addrs: "1.1.1.1 127.0.0.1", wantCode: lookup.BlockedAddress, wantDials: ""},
		"private beside one that is dead": {addrs: "1.1.1.1 8.8.8.8 ::ffff:10.0.0.1", silent: "1.1.1.1", wantCode: lookup.BlockedAddress, wantDials: ""},
	}, func(t *testing.T, c dialCase) {
		synctest.Test(t, c.run)
	})
}

// dialCase describes a host with several addresses, the expected dials and the expected error.
type dialCase struct {
	addrs, accepting, silent string // all addresses, the one that accepts, and those that stay silent; all others refuse
	slow                     string // the address that answers only after 400 ms
	unrouted                 string // the address families without a route
	wantDials                string // the expected dials in order, such as "1.1.1.1:443 at 0s"
	wantTime                 time.Duration
	wantCode                 fault.Code
	wantErr                  error
	wantText                 string
}

func (c dialCase) hasRoute(a netip.Addr) bool {
	family := "IPv6"
	if a.Is4() {
		family = "IPv4"
	}
	return !strings.Contains(c.unrouted, family)
}

// connect acts as the host when the Dialer connects to an address.
func (c dialCase) connect(ctx context.Context, address string) (net.Conn, error) {
	at := netip.MustParseAddrPort(address).Addr().String()
	if at == c.slow {
		<-time.After(400 * time.Millisecond)
	}
	switch {
	case at == c.accepting:
		near, far := net.Pipe()
		return near, far.Close()
	case slices.Contains(strings.Fields(c.silent), at):
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func (c dialCase) run(t *testing.T) {
	begin := time.Now()
	var mu sync.Mutex
	var dialed []string
	running := 0
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	d := &guard.Dialer{
		HasRoute: func(_ context.Context, a netip.Addr) bool { return c.hasRoute(a) },
		Connect: func(ctx context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			dialed = append(dialed, fmt.Sprintf("%s at %v", address, time.Since(begin)))
			running++
			mu.Unlock()
			conn, err := c.connect(ctx, address)
			mu.Lock()
			running--
			mu.Unlock()
			return conn, err
		},
	}
	conn, peer, err := d.Dial(ctx, guard.Target{Name: "a.test.com", Addrs: addrs(strings.Fields(c.addrs)...)}, 443)
	if err == nil {
		conn.Close()
	}
	if testbed.Code(err) != c.wantCode || c.wantErr != nil && !errors.Is(err, c.wantErr) || (err == nil) != (c.accepting != "") || err == nil && peer.String() != c.accepting {
		t.Fatalf("%s, %v, want code %q or %v or %s", peer, err, c.wantCode, c.wantErr, c.accepting)
	}
	if err != nil && (strings.Contains(err.Error(), "a.test.com") || !strings.Contains(fault.From(err).Public(), c.wantText)) {
		t.Errorf("%v, want %q in it, and not the name: errors are logged", err, c.wantText)
	}
	if diff := cmp.Diff(c.wantDials, strings.Join(dialed, ", ")); diff != "" {
		t.Errorf("dialled (-want +got):\n%s", diff)
	}
	if took := time.Since(begin); took != c.wantTime {
		t.Errorf("took %v, want %v", took, c.wantTime)
	}
	if running != 0 {
		t.Errorf("%d attempts are still running", running)
	}
}

// TestLosersAreClosed checks two connections that both succeed. The later one must be closed
// before Dial returns.
func TestLosersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		d := &guard.Dialer{HasRoute: always, Connect: func(_ context.Context, _, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "1.1.1.1:") {
				<-time.After(time.Second) // takes a second even if ctx ends
			}
			near, far := net.Pipe()
			return testbed.CountOpen(near, &open), far.Close()
		}}
		conn, peer, err := d.Dial(t.Context(), guard.Target{Name: "a.test.com", Addrs: addrs("1.1.1.1", "8.8.8.8")}, 443)
		if err != nil || peer.String() != "8.8.8.8" || open.Load() != 1 {
			t.Fatalf("%s, %v, %d connections are open, want the winner's alone", peer, err, open.Load())
		}
		conn.Close()
	})
}

// always reports that this machine has a route.
func always(context.Context, netip.Addr) bool { return true }

// TestUnreachable checks the message if HasRoute reports a route, but the kernel finds none
// when it connects. The message must name the address family.
func TestUnreachable(t *testing.T) {
	const lacks = "this service has no address of IPv6"
	testbed.Each(t, map[string]struct {
		errno syscall.Errno
		says  string
	}{
		"no route to the network": {syscall.ENETUNREACH, "unreachable over IPv6"},
		"no route to the host":    {syscall.EHOSTUNREACH, "unreachable over IPv6"},
		"no address":              {syscall.EADDRNOTAVAIL, lacks},
		"no such family":          {syscall.EAFNOSUPPORT, lacks},
		"anything else":           {syscall.ECONNABORTED, "no connection"},
	}, func(t *testing.T, c struct {
		errno syscall.Errno
		says  string
	}) {
		d := &guard.Dialer{HasRoute: always, Connect: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", c.errno)}
		}}
		_, _, err := d.Dial(t.Context(), guard.Target{Name: "a.test.com", Addrs: addrs("2606:4700::1")}, 443)
		if f := fault.From(err); f.Code != lookup.ConnectFailed || !strings.Contains(f.Public(), ": "+c.says+" (") {
			t.Errorf("%v, want connect_failed: %s", err, c.says)
		}
	})
}

// TestDialCancelled checks that the error says nothing about the target if the caller cancels
// ctx.
func TestDialCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &guard.Dialer{HasRoute: always, Connect: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _, err := d.Dial(ctx, guard.Target{Name: "a.test.com", Addrs: addrs("1.1.1.1", "8.8.8.8")}, 443)
		if !errors.Is(err, context.Canceled) || errors.As(err, new(*fault.Error)) {
			t.Errorf("%v, want context.Canceled and no code", err)
		}
	})
}

// refused lists the ranges that are not public. Most come from the IANA registries of
// special-purpose addresses; 2001::/23 contains Teredo, benchmarking, ORCHID and others. Some
// come from the registries of multicast and of the IPv6 address space, which assigns global
// unicast addresses from 2000::/3 only. One address comes from Azure's documentation.
var refused = strings.Fields(`
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
	203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
	::/3 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 4000::/2 8000::/1`)

// TestPublic compares the decisions of the guard with the registries. It tries the addresses
// around both ends of every range, up to three addresses away, and random addresses.
func TestPublic(t *testing.T) {
	t.Parallel()
	publics, n := 0, 0
	check := func(a netip.Addr) {
		within := func(p string) bool { return netip.MustParsePrefix(p).Contains(a) }
		want := !slices.ContainsFunc(refused, within)
		if code := testbed.Code(resolveErr(t, a)); (code == "") != want || !want && code != lookup.BlockedAddress {
			t.Fatalf("%s: %q, the registries say public %v", a, code, want)
		}
		if n++; want {
			publics++
		}
	}
	for _, text := range refused {
		p := netip.MustParsePrefix(text)
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < p.Addr().BitLen(); i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range slices.Concat(neighbours(p.Addr()), neighbours(end)) {
			check(a)
		}
	}
	// Random IPv4 addresses, and random IPv6 addresses in 2000::/3.
	r := rand.New(rand.NewPCG(7, 11))
	for range 2_000 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], r.Uint64())
		check(netip.AddrFrom4([4]byte(b[:4])))
		b[0] = b[0]&0x1f | 0x20
		check(netip.AddrFrom16(b))
	}
	if publics < n/10 || publics > n*9/10 {
		t.Errorf("%d of %d were public: the draw is lopsided", publics, n)
	}
	// An address with a zone and an invalid address are not public. The addresses of metadata
	// services are in the ranges above, or in the corpus of infra/simnet.
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("2606:4700:4700::1111%eth0")} {
		if code := testbed.Code(resolveErr(t, a)); code != lookup.BlockedAddress {
			t.Errorf("%s: %q, want blocked_address", a, code)
		}
	}
}

// neighbours returns an address with the three before it and the three after it, as far as
// these exist.
func neighbours(a netip.Addr) []netip.Addr {
	var all []netip.Addr
	up, down := a, a
	for range 4 {
		for _, a := range []netip.Addr{up, down} {
			if a.IsValid() {
				all = append(all, a)
			}
		}
		up, down = up.Next(), down.Prev()
	}
	return all
}

// resolveErr returns the error of resolving a name that has this address.
func resolveErr(t *testing.T, a netip.Addr) error {
	t.Helper()
	_, err := (&guard.Dialer{Resolver: zone{"a.test.com": {a}}}).Resolve(t.Context(), "a.test.com")
	return err
}
