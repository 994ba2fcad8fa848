// Package bundle has the lookups that are several single lookups for one payment:
// HostIntel and Uptime. Each child has its budget, and its failure is a
// value and not an error (spec §2.8).
package bundle

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// budget is what a child may take. It is shorter than a bundle's own deadline,
	// so that a slow child is its own time-out and leaves the others standing.
	budget = 8 * time.Second

	// margin is what a bundle keeps of its time to put its answer together.
	margin = time.Second / 2
)

// Child is a field of a bundle: a result, or why there is none.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil when Result counts
}

// Failure is a field of a bundle in which there is no result (spec §2.8).
type Failure struct {
	Error struct {
		Code    fault.Code `json:"code" doc:"Error code"`
		Message string     `json:"message" doc:"Public message"`
	} `json:"error" doc:"Why this child failed" schema:"ChildError"`
}

// MarshalJSON is the result or a Failure.
func (c Child[T]) MarshalJSON() ([]byte, error) {
	if c.Fault == nil {
		return json.Marshal(c.Result)
	}
	var f Failure
	f.Error.Code = c.Fault.Info().Code
	f.Error.Message = c.Fault.Public()
	return json.Marshal(f)
}

// owed names the fields of a bundle, in the order given, whose child failed with
// a code of the class fault.Owed; nil when there are none. prevented says that there
// are some and that not one of them was tried (fault.Error.IsPrevented), silent that
// one of them is owed because the target was silent (fault.Error.IsSilence).
func owed(names [3]string, faults [3]*fault.Error) (fields []string, prevented, silent bool) {
	tried := false
	for i, f := range faults {
		if f == nil || f.Info().Class != fault.Owed {
			continue
		}
		fields = append(fields, names[i])
		tried = tried || !f.IsPrevented()
		silent = silent || f.IsSilence()
	}
	return fields, len(fields) > 0 && !tried, silent
}

// together runs the lookups of a bundle side by side. They ask each DNS question
// once, and their context, which has a deadline, ends before the bundle's own, so that the
// last child to be slow is a time-out in its field and not one of the bundle. The bundle's
// is the error when its time is up, also where the context does not know it yet: a process
// that was frozen meanwhile has children that ran out of time through no fault of the
// host, and they may end before the context's own timer fires.
func together(whole context.Context, timeout fault.Code, lookups ...func(context.Context)) error {
	deadline, _ := whole.Deadline()
	ctx, cancel := context.WithDeadline(whole, deadline.Add(-margin))
	defer cancel()
	ctx, end := dns.Share(ctx)
	defer end()
	var all sync.WaitGroup
	for _, look := range lookups {
		all.Go(func() { look(ctx) })
	}
	all.Wait()
	if err := whole.Err(); err != nil {
		return lookup.Fault(timeout, err)
	}
	if time.Until(deadline) <= 0 {
		return lookup.Fault(timeout, context.DeadlineExceeded)
	}
	return nil
}

// run looks one child up within budget. A panic or a foreign error is an
// internal_error of this child alone.
func run[Q, T any](ctx context.Context, look func(context.Context, Q) (T, error), q Q) (c Child[T]) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c = Child[T]{Fault: fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))}
		}
	}()
	result, err := look(ctx, q)
	if err != nil {
		return Child[T]{Fault: fault.From(err)}
	}
	return Child[T]{Result: result}
}

// HostIntelQuery is a normalised question to HostIntel.
type HostIntelQuery struct {
	Domain  string // as guard.Domain returns it
	DNSType string // of the DNS lookup only
}

// HostIntelCodes are those that a query and its lookup can answer, beside those that its
// children answer in their fields.
func HostIntelCodes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.InvalidType, lookup.HostIntelTimeout}
}

// ParseHostIntel reads domain and dns_type. It returns invalid_domain or
// invalid_type. Underscore labels are refused: two of the three lookups want a
// host name.
func ParseHostIntel(q url.Values) (HostIntelQuery, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return HostIntelQuery{}, err
	}
	kind, err := dns.TypeParam(q, "dns_type")
	if err != nil {
		return HostIntelQuery{}, err
	}
	return HostIntelQuery{Domain: domain, DNSType: kind}, nil
}

// Values are the parameters as understood, defaults filled in.
func (q HostIntelQuery) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "dns_type": {q.DNSType}}
}

// HostIntelResult is spec §2.6.
type HostIntelResult struct {
	Domain string              `json:"domain" doc:"Normalized FQDN queried"`
	DNS    Child[dns.Result]   `json:"dns" doc:"DNS result, or an error object" schema:"DnsResult"`
	SSL    Child[ssl.Result]   `json:"ssl" doc:"SSL result, or an error object" schema:"SslResult"`
	Whois  Child[whois.Result] `json:"whois" doc:"WHOIS result, or an error object" schema:"WhoisResult"`
}

// Owed is what the children of the bundle owe.
func (r HostIntelResult) Owed() (fields []string, prevented, silent bool) {
	return owed([...]string{"dns", "ssl", "whois"}, [...]*fault.Error{r.DNS.Fault, r.SSL.Fault, r.Whois.Fault})
}

// HostIntel is the host intelligence bundle: DNS, certificate and registry data of
// a name, looked up side by side for one payment (spec §2.6, §4.7). Where they want
// the same records, one resolution serves them.
type HostIntel struct {
	DNS   lookup.Looker[dns.Query, dns.Result]
	SSL   lookup.Looker[ssl.Query, ssl.Result]
	Whois lookup.Looker[whois.Query, whois.Result]
}

// Lookup answers a query. A child that fails is in its field; the only error
// is host_intel_timeout, when ctx ends first.
func (c HostIntel) Lookup(ctx context.Context, q HostIntelQuery) (r HostIntelResult, err error) {
	r.Domain = q.Domain
	err = together(ctx, lookup.HostIntelTimeout,
		func(ctx context.Context) {
			r.DNS = run(ctx, c.DNS.Lookup, dns.Query{Domain: q.Domain, Type: q.DNSType})
		},
		func(ctx context.Context) { r.SSL = run(ctx, c.SSL.Lookup, ssl.Query{Domain: q.Domain}) },
		func(ctx context.Context) { r.Whois = run(ctx, c.Whois.Lookup, whois.Query{Domain: q.Domain}) })
	return r, err
}

// HostIntelVerdicts are the rules for the line that says in words what a
// HostIntelResult found. Its children have their own.
func HostIntelVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "dns.error.code = nxdomain", Says: "{dns.error.message}", Tone: lookup.Bad},
		{If: "ssl.expired = true", Says: "The certificate expired {ssl.not_after date}, {ssl.not_after distance}", Tone: lookup.Bad},
		{If: "ssl.not_yet_valid = true", Says: "The certificate is not valid before {ssl.not_before date}", Tone: lookup.Bad},
		{If: "ssl.hostname_match = false", Says: "The certificate is not for {domain}", Tone: lookup.Bad},
		{If: "ssl.error.code != null", Says: "No certificate: {ssl.error.message}", Tone: lookup.Bad},
		{If: "dns.error.code != null", Says: "No DNS records: {dns.error.message}", Tone: lookup.Warn},
		{If: "whois.error.code != null", Says: "Certificate until {ssl.not_after date}; no registry data: {whois.error.message}", Tone: lookup.Warn},
		{If: "whois.expires_at != null", Says: "Certificate until {ssl.not_after date}, registered until {whois.expires_at date}", Tone: lookup.Good},
		{Says: "Certificate until {ssl.not_after date}, registered", Tone: lookup.Good},
	}
}

// Verdict says how the host is (spec §3.1).
type Verdict string

// The verdicts: everything answers and is well, the origin answers with a bad certificate or
// a status from 500 on, or something does not answer.
const (
	Up       Verdict = "up"
	Degraded Verdict = "degraded"
	Down     Verdict = "down"
)

// UptimeResult is spec §2.7.
type UptimeResult struct {
	Domain  string                `json:"domain" doc:"Normalized FQDN queried"`
	Verdict Verdict               `json:"verdict" doc:"Verdict on the host" enum:"up,degraded,down" schema:"Verdict"`
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
func (c Uptime) Lookup(ctx context.Context, q guard.Query) (r UptimeResult, err error) {
	r.Domain = q.Domain
	err = together(ctx, lookup.UptimeCheckTimeout,
		func(ctx context.Context) {
			r.DNS = run(ctx, c.DNS.Lookup, dns.Query{Domain: q.Domain, Type: dns.DefaultType})
		},
		func(ctx context.Context) { r.SSL, r.Headers = c.web(ctx, q.Domain) })
	r.Verdict = verdict(r)
	return r, err
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
