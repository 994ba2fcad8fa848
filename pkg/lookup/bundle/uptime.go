package bundle

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Verdict says how the host is (spec §3.1).
type Verdict string

// The verdicts.
const (
	// Up: everything answers, the certificate is valid now and matches, and
	// the origin's status is below 500.
	Up Verdict = "up"
	// Degraded: the origin answers, and its certificate or its status is bad.
	Degraded Verdict = "degraded"
	// Down: DNS, certificate or answer could not be had.
	Down Verdict = "down"
)

// UptimeResult is spec §2.7.
type UptimeResult struct {
	Domain  string                `json:"domain" doc:"Normalized FQDN queried"`
	Verdict Verdict               `json:"verdict" doc:"What the three lookups come to" enum:"up,degraded,down" schema:"Verdict"`
	DNS     Child[dns.Result]     `json:"dns" doc:"DNS result, or an error object" schema:"DnsResult"`
	SSL     Child[ssl.Result]     `json:"ssl" doc:"SSL result, or an error object" schema:"SslResult"`
	Headers Child[headers.Result] `json:"headers" doc:"Headers result, or an error object" schema:"HeadersResult"`
}

// UptimeCodes are those that a query and its lookup can answer, beside those that its
// children answer in their fields.
func UptimeCodes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.UptimeCheckTimeout}
}

// Owed is what the children of the bundle owe.
func (r UptimeResult) Owed() (fields []string, prevented, silent bool) {
	return owed([...]string{"dns", "ssl", "headers"}, [...]*fault.Error{r.DNS.Fault, r.SSL.Fault, r.Headers.Fault})
}

// Uptime is the uptime check bundle: DNS, certificate and HTTPS answer of
// https://{domain}/ with one verdict, for one payment (spec §2.7, §3.1, §4.8). One
// resolution serves all three, and the certificate and the answer come over one
// connection.
type Uptime struct {
	// Connector finds the host once, for its certificate and for its answer.
	Connector guard.Connector
	DNS       lookup.Looker[dns.Query, dns.Result]
	SSL       interface {
		Inspect(ctx context.Context, q ssl.Query, t guard.Target) (ssl.Result, *tls.Conn, error)
	}
	Headers interface {
		LookupOn(ctx context.Context, q headers.Query, t guard.Target, c *tls.Conn, from netip.Addr) (headers.Result, error)
	}
}

// Lookup answers a query. A child that fails is in its field; the only error
// is uptime_check_timeout, when ctx ends first.
func (c Uptime) Lookup(ctx context.Context, q guard.Query) (UptimeResult, error) {
	r := UptimeResult{Domain: q.Domain}
	err := together(ctx, lookup.UptimeCheckTimeout,
		func(ctx context.Context) {
			r.DNS = run(ctx, c.DNS.Lookup, dns.Query{Domain: q.Domain, Type: dns.DefaultType})
		},
		func(ctx context.Context) { r.SSL, r.Headers = c.web(ctx, q.Domain) })
	if err != nil {
		return UptimeResult{}, err
	}
	r.Verdict = verdict(r)
	return r, nil
}

// web resolves once, takes the certificate, and asks for the headers over the
// same connection. What keeps the certificate away would keep the answer away, too,
// and is what the headers lookup would say of it.
func (c Uptime) web(ctx context.Context, domain string) (certificate Child[ssl.Result], answer Child[headers.Result]) {
	var target guard.Target
	var conn *tls.Conn
	certificate = run(ctx, func(ctx context.Context, q ssl.Query) (r ssl.Result, err error) {
		if target, err = c.Connector.Resolve(ctx, domain); err != nil {
			return r, origin.Fault(ctx, err, lookup.SSLTimeout)
		}
		r, conn, err = c.SSL.Inspect(ctx, q, target)
		return r, err
	}, ssl.Query{Domain: domain})
	if f := certificate.Fault; f != nil {
		if f.Code == lookup.SSLTimeout {
			f = f.WithCode(lookup.Info(lookup.HeadersTimeout)) // with its message and its mark
		}
		return certificate, Child[headers.Result]{Fault: f}
	}
	peer, _ := netip.ParseAddr(certificate.Result.PeerIP) // which an address was printed to
	return certificate, run(ctx, func(ctx context.Context, q headers.Query) (headers.Result, error) {
		return c.Headers.LookupOn(ctx, q, target, conn, peer)
	}, headers.Query{Domain: domain})
}

func verdict(r UptimeResult) Verdict {
	switch s := r.SSL.Result; {
	case r.DNS.Fault != nil || r.SSL.Fault != nil || r.Headers.Fault != nil:
		return Down
	case s.Expired || s.NotYetValid || !s.HostnameMatch || r.Headers.Result.Status >= http.StatusInternalServerError:
		return Degraded
	}
	return Up
}

// UptimeVerdicts are the rules for the line that says in words what an UptimeResult
// found. Its children have their own.
func UptimeVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "verdict = up", Says: "Up: certificate in date and for {domain}, HTTP {headers.status}", Tone: lookup.Good},
		{If: "dns.error.code != null", Says: "Down: {dns.error.message}", Tone: lookup.Bad},
		{If: "ssl.error.code != null", Says: "Down: {ssl.error.message}", Tone: lookup.Bad},
		{If: "headers.error.code != null", Says: "Down: {headers.error.message}", Tone: lookup.Bad},
		{If: "ssl.expired = true", Says: "Degraded: the certificate expired {ssl.not_after date}, {ssl.not_after distance}", Tone: lookup.Warn},
		{If: "ssl.not_yet_valid = true", Says: "Degraded: the certificate is not valid before {ssl.not_before date}", Tone: lookup.Warn},
		{If: "ssl.hostname_match = false", Says: "Degraded: the certificate is not for {domain}", Tone: lookup.Warn},
		{Says: "Degraded: HTTP {headers.status}", Tone: lookup.Warn},
	}
}
