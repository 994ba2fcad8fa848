package bundle

import (
	"context"
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// HostIntelQuery is a normalised query for HostIntel.
type HostIntelQuery struct {
	Domain  string // a host name in the form that guard.Domain returns
	DNSType string // the record type of the DNS lookup
}

// HostIntelCodes returns the codes of the errors that ParseHostIntel and HostIntel.Lookup can
// return. It does not include the codes in the fields of the children.
func HostIntelCodes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.InvalidType, lookup.HostIntelTimeout}
}

// ParseHostIntel parses the parameters domain and dns_type. Its errors are invalid_domain and
// invalid_type. It refuses labels with underscores, because two of the three lookups need a
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

// Values returns the normalised parameters, with defaults filled in.
func (q HostIntelQuery) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "dns_type": {q.DNSType}}
}

// HostIntelResult is the result of the bundle HostIntel (spec §2.6).
type HostIntelResult struct {
	Domain string              `json:"domain" doc:"Normalized FQDN queried"`
	DNS    Child[dns.Result]   `json:"dns" doc:"DNS result, or an error object" schema:"DnsResult"`
	SSL    Child[ssl.Result]   `json:"ssl" doc:"SSL result, or an error object" schema:"SslResult"`
	Whois  Child[whois.Result] `json:"whois" doc:"WHOIS result, or an error object" schema:"WhoisResult"`
}

// Owed returns the fields of the bundle that the buyer is owed.
func (r HostIntelResult) Owed() Owed {
	var owed Owed
	owed.add("dns", r.DNS.Fault)
	owed.add("ssl", r.SSL.Fault)
	owed.add("whois", r.Whois.Fault)
	return owed
}

// HostIntel is the host intelligence bundle. For one payment it looks up the DNS records, the
// certificate and the registration data of a name, at the same time (spec §2.6, §4.7). If
// several of these lookups need the same DNS records, they are resolved only once.
type HostIntel struct {
	DNS   lookup.Looker[dns.Query, dns.Result]
	SSL   lookup.Looker[ssl.Query, ssl.Result]
	Whois lookup.Looker[whois.Query, whois.Result]
}

// Lookup answers a query. If a child fails, the child's field in the result holds the failure.
// The only error of Lookup is host_intel_timeout, for a bundle that runs out of time. ctx must
// have a deadline.
func (h HostIntel) Lookup(ctx context.Context, q HostIntelQuery) (HostIntelResult, error) {
	r := HostIntelResult{Domain: q.Domain}
	lookUpDNS := func(ctx context.Context) {
		r.DNS = lookUpChild(ctx, h.DNS.Lookup, dns.Query{Domain: q.Domain, Type: q.DNSType})
	}
	lookUpSSL := func(ctx context.Context) {
		r.SSL = lookUpChild(ctx, h.SSL.Lookup, ssl.Query{Domain: q.Domain})
	}
	lookUpWhois := func(ctx context.Context) {
		r.Whois = lookUpChild(ctx, h.Whois.Lookup, whois.Query{Domain: q.Domain})
	}
	err := runLookups(ctx, lookup.HostIntelTimeout, lookUpDNS, lookUpSSL, lookUpWhois)
	return r, err
}

// HostIntelVerdicts returns the rules for the line that summarises a HostIntelResult as a
// whole. Each child's lookup has its own rules for the line above the child's result.
func HostIntelVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{
			If:   "dns.error.code = nxdomain",
			Says: "{dns.error.message}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.expired = true",
			Says: "The certificate expired {ssl.not_after date}, {ssl.not_after distance}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.not_yet_valid = true",
			Says: "The certificate is not valid before {ssl.not_before date}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.hostname_match = false",
			Says: "The certificate is not for {domain}",
			Tone: lookup.Bad,
		},
		{
			If:   "ssl.error.code != null",
			Says: "No certificate: {ssl.error.message}",
			Tone: lookup.Bad,
		},
		{
			If:   "dns.error.code != null",
			Says: "No DNS records: {dns.error.message}",
			Tone: lookup.Warn,
		},
		{
			If:   "whois.error.code != null",
			Says: "Certificate valid until {ssl.not_after date}; no registry data: {whois.error.message}",
			Tone: lookup.Warn,
		},
		{
			If:   "whois.expires_at != null",
			Says: "Certificate valid until {ssl.not_after date}; domain registered until {whois.expires_at date}",
			Tone: lookup.Good,
		},
		{
			Says: "Certificate valid until {ssl.not_after date}; domain registered",
			Tone: lookup.Good,
		},
	}
}
