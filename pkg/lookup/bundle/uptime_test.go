package bundle

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// host is a host as the lookups see it.
type host struct {
	resolve, dns, ssl, headers error
	certificate                ssl.Result
	status                     int
	conn                       *tls.Conn

	resolves int
	got      *tls.Conn
	target   guard.Target
	peer     netip.Addr
}

func (h *host) Resolve(context.Context, string) (guard.Target, error) {
	h.resolves++
	return guard.Target{Name: "example.com", Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.34")}}, h.resolve
}

func (h *host) Dial(context.Context, guard.Target, uint16) (net.Conn, netip.Addr, error) {
	panic("the bundle does not dial by itself")
}

func (h *host) Lookup(context.Context, dns.Query) (dns.Result, error) { return dns.Result{}, h.dns }

func (h *host) Inspect(context.Context, ssl.Query, guard.Target) (ssl.Result, *tls.Conn, error) {
	return h.certificate, h.conn, h.ssl
}

func (h *host) LookupOn(_ context.Context, _ headers.Query, t guard.Target, c *tls.Conn, peer netip.Addr) (headers.Result, error) {
	h.got, h.target, h.peer = c, t, peer
	return headers.Result{Status: h.status}, h.headers
}

func good() *host {
	return &host{certificate: ssl.Result{HostnameMatch: true, PeerIP: "93.184.216.34"}, status: 200, conn: &tls.Conn{}}
}

func check(t *testing.T, h *host) UptimeResult {
	t.Helper()
	r, err := NewUptime(h, h, h, h).Lookup(t.Context(), UptimeQuery{Domain: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every row of spec §3.1.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(h *host)
		want   Verdict
	}{
		{"all well", func(*host) {}, Up},
		{"499", func(h *host) { h.status = 499 }, Up},
		{"500", func(h *host) { h.status = 500 }, Degraded},
		{"expired", func(h *host) { h.certificate.Expired = true }, Degraded},
		{"not yet valid", func(h *host) { h.certificate.NotYetValid = true }, Degraded},
		{"mismatch", func(h *host) { h.certificate.HostnameMatch = false }, Degraded},
		{"dns fails", func(h *host) { h.dns = fault.New(fault.DNSTimeout, nil) }, Down},
		{"ssl fails", func(h *host) { h.ssl = fault.New(fault.HandshakeFailed, nil) }, Down},
		{"headers fail", func(h *host) { h.headers = fault.New(fault.HTTPFailed, nil) }, Down},
		{"expired and headers fail", func(h *host) { h.certificate.Expired = true; h.headers = fault.New(fault.HTTPFailed, nil) }, Down},
		{"blocked", func(h *host) { h.resolve = fault.New(fault.BlockedAddress, nil) }, Down},
	} {
		h := good()
		c.change(h)
		if r := check(t, h); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, r.Verdict, c.want)
		}
	}
}

// One resolution and one connection serve both, and what keeps the one away
// keeps the other away.
func TestUptimeShares(t *testing.T) {
	h := good()
	check(t, h)
	if h.resolves != 1 || h.got != h.conn || h.peer.String() != "93.184.216.34" || len(h.target.Addrs) != 1 {
		t.Errorf("%d resolutions, connection %p for %p, peer %s, target %v", h.resolves, h.got, h.conn, h.peer, h.target)
	}
	for _, c := range []struct {
		resolve, ssl error
		want         string
	}{
		{fault.New(fault.NXDomain, nil), nil, "nxdomain nxdomain"},
		{fault.New(fault.BlockedAddress, nil), nil, "blocked_address blocked_address"},
		{fmt.Errorf("silence: %w", guard.ErrResolvers), nil, "ssl_timeout headers_timeout"},
		{nil, fault.New(fault.ConnectFailed, nil), "connect_failed connect_failed"},
		{nil, fault.New(fault.HandshakeFailed, nil), "handshake_failed handshake_failed"},
		{nil, fault.New(fault.SSLTimeout, nil), "ssl_timeout headers_timeout"},
	} {
		h := good()
		h.resolve, h.ssl = c.resolve, c.ssl
		r := check(t, h)
		if got := fmt.Sprint(r.SSL.Fault.Code, " ", r.Headers.Fault.Code); got != c.want {
			t.Errorf("%v, %v: %s, want %s", c.resolve, c.ssl, got, c.want)
		}
		if h.got != nil {
			t.Error("headers were looked up without a certificate")
		}
	}
	// A handshake that failed after the certificate leaves no connection: the
	// headers make their own.
	h = good()
	h.conn = nil
	check(t, h)
	if len(h.target.Addrs) != 1 || h.got != nil {
		t.Errorf("target %v, connection %p", h.target, h.got)
	}
}
