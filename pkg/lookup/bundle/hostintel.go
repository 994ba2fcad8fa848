package bundle

import (
	"context"
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// HostIntelQuery is a normalised question to HostIntel.
type HostIntelQuery struct {
	Domain  string // as guard.Domain returns it
	DNSType string // of the DNS lookup only
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

// Owed names the fields, in the order of the JSON, whose child failed for a
// reason that is ours or by its silence; prevented says that none of those was
// tried, silent that a silence is among them.
func (r HostIntelResult) Owed() (fields []string, prevented, silent bool) {
	return owed([...]string{"dns", "ssl", "whois"}, [...]*fault.Error{r.DNS.Fault, r.SSL.Fault, r.Whois.Fault})
}

// HostIntel is the host intelligence bundle: DNS, certificate and registry data of
// a name, looked up side by side for one payment (spec §2.6, §4.7). Where they want
// the same records, one resolution serves them.
type HostIntel struct {
	dns   lookup.Looker[dns.Query, dns.Result]
	ssl   lookup.Looker[ssl.Query, ssl.Result]
	whois lookup.Looker[whois.Query, whois.Result]
}

// NewHostIntel returns the bundle of the three lookups.
func NewHostIntel(d lookup.Looker[dns.Query, dns.Result], s lookup.Looker[ssl.Query, ssl.Result], w lookup.Looker[whois.Query, whois.Result]) HostIntel {
	return HostIntel{dns: d, ssl: s, whois: w}
}

// Lookup answers a query. A child that fails is in its field; the only error
// is host_intel_timeout, when ctx ends first.
func (c HostIntel) Lookup(ctx context.Context, q HostIntelQuery) (HostIntelResult, error) {
	r := HostIntelResult{Domain: q.Domain}
	err := together(ctx, lookup.HostIntelTimeout,
		func(ctx context.Context) {
			r.DNS = run(ctx, c.dns.Lookup, dns.Query{Domain: q.Domain, Type: q.DNSType})
		},
		func(ctx context.Context) { r.SSL = run(ctx, c.ssl.Lookup, ssl.Query{Domain: q.Domain}) },
		func(ctx context.Context) { r.Whois = run(ctx, c.whois.Lookup, whois.Query{Domain: q.Domain}) })
	if err != nil {
		return HostIntelResult{}, err
	}
	return r, nil
}
