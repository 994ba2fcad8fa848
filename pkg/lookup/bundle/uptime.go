package bundle

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Verdict summarises in one word how a host is doing (spec §3.1).
type Verdict string

// The verdicts. Down means that at least one of the three lookups failed. Degraded means that
// all succeeded, but found a problem: the certificate is expired, not yet valid or for another
// name, or the HTTP status is 500 or higher. Up means that all succeeded and found no problem.
const (
	Up       Verdict = "up"
	Degraded Verdict = "degraded"
	Down     Verdict = "down"
)

// UptimeResult is the result of an uptime check (spec §2.7).
type UptimeResult struct {
	Domain  string                `json:"domain" doc:"Normalized FQDN queried"`
	Verdict Verdict               `json:"verdict" doc:"Verdict on the host" enum:"up,degraded,down" schema:"Verdict"`
	DNS     Child[dns.Result]     `json:"dns" doc:"DNS result, or an error object" schema:"DnsResult"`
	SSL     Child[ssl.Result]     `json:"ssl" doc:"SSL result, or an error object" schema:"SslResult"`
	Headers Child[headers.Result] `json:"headers" doc:"Headers result, or an error object" schema:"HeadersResult"`
}

// Owed returns the fields of the bundle that the buyer is owed.
func (r UptimeResult) Owed() Owed {
	var owed Owed
	owed.add("dns", r.DNS.Fault)
	owed.add("ssl", r.SSL.Fault)
	owed.add("headers", r.Headers.Fault)
	return owed
}

// verdict returns the verdict that follows from the results of the children.
func (r UptimeResult) verdict() Verdict {
	if r.DNS.Fault != nil || r.SSL.Fault != nil || r.Headers.Fault != nil {
		return Down
	}
	certificate := r.SSL.Result
	if certificate.Expired || certificate.NotYetValid || !certificate.HostnameMatch {
		return Degraded
	}
	if r.Headers.Result.Status >= http.StatusInternalServerError {
		return Degraded
	}
	return Up
}

// UptimeCodes returns the codes of the errors that parsing a query and Uptime.Lookup can
// return. It does not include the codes in the fields of the children.
func UptimeCodes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.UptimeCheckTimeout}
}

// Uptime is the uptime check bundle. For one payment it looks up the DNS records, the
// certificate and the response headers of https://{domain}/, and sums them up in one verdict
// (spec §2.7, §3.1, §4.8). All three lookups share the resolution of the name. The certificate
// and the headers come over one connection.
type Uptime struct {
	// Connector resolves the host's name for the certificate and the headers.
	Connector guard.Connector
	DNS       lookup.Looker[dns.Query, dns.Result]
	SSL       interface {
		Inspect(ctx context.Context, q ssl.Query, t guard.Target) (ssl.Result, *tls.Conn, error)
	}
	Headers interface {
		LookupOn(ctx context.Context, q headers.Query, t guard.Target, c *tls.Conn, from netip.Addr) (headers.Result, error)
	}
}

// Lookup answers a query. If a child fails, the child's field in the result holds the failure.
// The only error of Lookup is uptime_check_timeout, for a bundle that runs out of time. ctx
// must have a deadline.
func (u Uptime) Lookup(ctx context.Context, q guard.Query) (UptimeResult, error) {
	r := UptimeResult{Domain: q.Domain}
	lookUpDNS := func(ctx context.Context) {
		r.DNS = lookUpChild(ctx, u.DNS.Lookup, dns.Query{Domain: q.Domain, Type: dns.DefaultType})
	}
	lookUpWeb := func(ctx context.Context) {
		v := webCheck{uptime: u}
		r.SSL = lookUpChild(ctx, v.inspect, ssl.Query{Domain: q.Domain})
		if r.SSL.Fault != nil {
			r.Headers.Fault = headersFault(r.SSL.Fault)
			return
		}
		r.Headers = lookUpChild(ctx, v.fetchHeaders, q)
	}
	err := runLookups(ctx, lookup.UptimeCheckTimeout, lookUpDNS, lookUpWeb)
	r.Verdict = r.verdict()
	return r, err
}

// webCheck is the part of an uptime check that connects to the web server of the host. It gets
// first the certificate and then, over the same connection, the headers.
type webCheck struct {
	uptime Uptime
	target guard.Target
	conn   *tls.Conn
	peer   netip.Addr
}

// inspect resolves the host, connects to it and returns the certificate.
func (v *webCheck) inspect(ctx context.Context, q ssl.Query) (ssl.Result, error) {
	target, err := v.uptime.Connector.Resolve(ctx, q.Domain)
	if err != nil {
		return ssl.Result{}, origin.Fault(ctx, err, lookup.SSLTimeout)
	}
	result, conn, err := v.uptime.SSL.Inspect(ctx, q, target)
	v.target = target
	v.conn = conn
	v.peer, _ = netip.ParseAddr(result.PeerIP) // after an error, PeerIP is empty and peer is the zero Addr
	return result, err
}

// fetchHeaders fetches the headers over the connection that inspect made. If inspect left no
// connection, it makes a new one.
func (v *webCheck) fetchHeaders(ctx context.Context, q headers.Query) (headers.Result, error) {
	return v.uptime.Headers.LookupOn(ctx, q, v.target, v.conn, v.peer)
}

// headersFault returns the failure of the headers lookup if the certificate lookup has failed
// with the given failure. The same problem prevents both lookups, so both have the same
// failure, with its message and its marks (prevented, silence of the target). Only a time-out
// gets another code, because each lookup has its own code for that.
func headersFault(certificate *fault.Error) *fault.Error {
	if certificate.Code == lookup.SSLTimeout {
		return certificate.WithCode(lookup.Info(lookup.HeadersTimeout))
	}
	return certificate
}

// UptimeVerdicts returns the rules for the line that summarises an UptimeResult as a whole.
// Each child's lookup has its own rules for the line above the child's result.
func UptimeVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{
			If:   "verdict = up",
			Says: "Up: HTTP {headers.status}, with a certificate that is valid for {domain}",
			Tone: lookup.Good,
		},
		{
			If:   "dns.error.code != null",
			Says: "Down: {dns.error.message}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.error.code != null",
			Says: "Down: {ssl.error.message}",
			Tone: lookup.Bad,
		},
		{
			If:   "headers.error.code != null",
			Says: "Down: {headers.error.message}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.expired = true",
			Says: "Degraded: the certificate expired {ssl.not_after date}, {ssl.not_after distance}",
			Tone: lookup.Warn,
		},
		{
			If:   "ssl.not_yet_valid = true",
			Says: "Degraded: the certificate is not valid before {ssl.not_before date}",
			Tone: lookup.Warn,
		},
		{
			If:   "ssl.hostname_match = false",
			Says: "Degraded: the certificate is not for {domain}",
			Tone: lookup.Warn,
		},
		{
			Says: "Degraded: HTTP {headers.status}",
			Tone: lookup.Warn,
		},
	}
}
