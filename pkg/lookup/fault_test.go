package lookup_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestFaults runs the certificate, headers and redirect lookups of a host that cannot be
// reached or is silent. Each error must have the code of the row. If the row has silence, the
// error must be marked as the host's silence; otherwise it must not. The tests of the packages
// guard, origin and ssl cover more kinds of failures.
func TestFaults(t *testing.T) {
	const name, addr = "a.test.com", "93.184.216.34"
	type row struct {
		prepare  func(w *testbed.Origins, expire func())
		want     fault.Code // the expected code; empty means the time-out code of the lookup
		silence  bool
		unrouted bool // whether the service has no route to IPv6 addresses
	}
	resolveTo := func(to testbed.OriginName) func(*testbed.Origins, func()) {
		return func(w *testbed.Origins, _ func()) { w.Resolve(name, to) }
	}
	rows := map[string]row{
		"nxdomain":     {prepare: resolveTo(testbed.OriginName{Err: lookup.Fault(lookup.NXDomain, nil)}), want: lookup.NXDomain},
		"resolvers":    {prepare: resolveTo(testbed.OriginName{Err: fmt.Errorf("x: %w", guard.ErrResolvers)})},
		"unresolvable": {prepare: resolveTo(testbed.OriginName{Err: fmt.Errorf("x: %w", guard.ErrUnresolvable)}), silence: true},
		"no route":     {prepare: resolveTo(testbed.OriginName{Addrs: []string{"2606:4700::1"}}), unrouted: true, want: lookup.ConnectFailed},
		"closed":       {prepare: resolveTo(testbed.OriginName{Addrs: []string{addr}}), want: lookup.ConnectFailed},
		"silent": {prepare: func(w *testbed.Origins, expire func()) {
			w.Accept(name, addr, func(conn net.Conn) {
				conn.Read(make([]byte, 1))
				expire()
				io.Copy(io.Discard, conn)
			})
		}, silence: true},
	}
	for timeout, lookUp := range map[fault.Code]func(context.Context, *origin.Client) error{
		lookup.SSLTimeout: func(ctx context.Context, c *origin.Client) error {
			_, err := ssl.New(ssl.Config{Connector: c.Connector}).Lookup(ctx, ssl.Query{Domain: name})
			return err
		},
		lookup.HeadersTimeout: func(ctx context.Context, c *origin.Client) error {
			_, err := headers.New(c).Lookup(ctx, headers.Query{Domain: name})
			return err
		},
		lookup.RedirectTimeout: func(ctx context.Context, c *origin.Client) error {
			_, err := redirect.New(c).Lookup(ctx, redirect.Query{Domain: name})
			return err
		},
	} {
		t.Run(string(timeout), func(t *testing.T) {
			testbed.Each(t, rows, func(t *testing.T, c row) {
				w := testbed.NewOrigins(t)
				ctx, expire := testbed.Expiring(testbed.Soon(t))
				c.prepare(w, expire)
				want := c.want
				if want == "" {
					want = timeout
				}
				dialer := w.Dialer()
				dialer.HasRoute = func(_ context.Context, a netip.Addr) bool { return a.Is4() || !c.unrouted }
				f := fault.From(lookUp(ctx, &origin.Client{Connector: dialer, UserAgent: "test"}))
				if f.Code != want || f.IsSilence() != c.silence {
					t.Errorf("%v, want %s", f, want)
				}
			})
		})
	}
}
