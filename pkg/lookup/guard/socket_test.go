package guard

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSocketIsChecked checks the last line of defence: connectChecked must refuse to connect
// to a real listener on loopback, although nothing else has checked the address.
func TestSocketIsChecked(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := connectChecked(t.Context(), "tcp", l.Addr().String())
	if err == nil {
		conn.Close()
	}
	if fault.From(err).Code != lookup.BlockedAddress {
		t.Errorf("%v, want blocked_address", err)
	}
}

func TestCheckSocket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		network, address string
		ok               bool
	}{
		{network: "tcp4", address: "1.1.1.1:443", ok: true},
		{network: "tcp6", address: "[2606:4700::1]:443", ok: true},
		{network: "tcp4", address: "127.0.0.1:443", ok: false},
		{network: "tcp6", address: "[::ffff:1.1.1.1]:443", ok: false},
		{network: "tcp6", address: "[fe80::1%eth0]:443", ok: false},
		{network: "udp4", address: "1.1.1.1:443", ok: false},
		{network: "tcp", address: "1.1.1.1:443", ok: false},
		{network: "tcp4", address: "example.com:443", ok: false},
	} {
		if err := checkSocket(c.network, c.address, nil); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.network, c.address, err)
		}
	}
}

func TestHasRoute(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	// The IPv6 loopback address has a route only if IPv6 is enabled.
	l, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		l.Close()
	}
	for name, ctx := range map[string]context.Context{"with time": t.Context(), "without": over} {
		if got := hasRoute(ctx, netip.IPv6Loopback()); got != (err == nil) {
			t.Errorf("%s: route to ::1: %v; listening there: %v", name, got, err)
		}
		if !hasRoute(ctx, netip.MustParseAddr("127.0.0.1")) {
			t.Errorf("%s: no route to 127.0.0.1", name)
		}
	}
}

// TestIsNoRoute checks that isNoRoute accepts only the errors of a missing route. Any other
// error is a problem of this machine, and must not be reported as a fact about the host.
func TestIsNoRoute(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]bool{
		syscall.ENETUNREACH: true, syscall.EHOSTUNREACH: true, syscall.EADDRNOTAVAIL: true, syscall.EAFNOSUPPORT: true,
		syscall.EMFILE: false, syscall.ENOBUFS: false, syscall.EPERM: false, syscall.ECONNREFUSED: false,
	} {
		err := &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("connect", errno)}
		if got := isNoRoute(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
