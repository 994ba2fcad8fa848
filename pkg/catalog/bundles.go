package catalog

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// bundle is the deadline of a bundle.
const bundle = 12 * time.Second

// child is a field of a bundle: a result, or why there is none (spec §2.8).
func child(name, what string, of Operation) Field {
	return Field{
		Name: name, Type: "object", Description: what + " result, or an error object",
		Items: []Field{
			{Name: "result", Type: "object", Schema: of.Result, Fields: of.Fields},
			{Name: "failure", Type: "object", Schema: "ChildFailure", Fields: []Field{{
				Name: "error", Type: "object", Description: "Why this child failed", Schema: "ChildError",
				Fields: []Field{text("code", "Error code"), text("message", "Public message")},
			}}},
		},
	}
}

// HostIntel is the host intelligence bundle (spec §2.6, §4.7).
func HostIntel() Operation {
	return Operation{
		Slug: "host-intel", Path: "/v1/bundles/host-intel", Title: "Host intelligence bundle", Tool: "host_intel", Kind: Bundle, Amount: "15000",
		Result: "HostIntelligenceResult", Use: "for what `dns`, `ssl-check` and `whois` say of one name: the price of the three, in one payment and one answer",
		Summary: "DNS, TLS certificate and registry data of a hostname for one payment.",
		Description: "One payment, three live lookups side by side: DNS records, the leaf TLS certificate and RDAP registry data of a public hostname. " +
			"A lookup that fails is reported in its field; the others stand, and no data is invented.",
		Tags: []string{"dns", "tls", "whois", "bundle"},
		Params: []Param{
			domainParam(),
			{
				Name: "dns_type", Type: "string", Default: "A", Enum: RecordTypes(), Example: "A",
				Description: "Record type of the DNS lookup alone, in either case.",
			},
		},
		Example: exampleDomain(),
		Errors:  []fault.Code{fault.InvalidDomain, fault.InvalidType, fault.HostIntelTimeout, fault.Overloaded},
		Fields: []Field{
			text("domain", "Normalized FQDN queried"),
			child("dns", "DNS", DNS()), child("ssl", "SSL", SSLCheck()), child("whois", "WHOIS", Whois()),
		},
		Response: `{"domain":"example.com","dns":` + addressExample + `,"ssl":` + sslExample + `,"whois":` + whoisExample + `}`,
		Deadline: bundle,
	}
}

const addressExample = `{"domain":"example.com","type":"A","rcode":"NOERROR","resolver":"1.1.1.1","ttl":300,"records":[{"address":"93.184.216.34"}]}`

// failedExample is a child that failed: the results are shown by the tools.
const failedExample = `{"error":{"code":"connect_failed","message":"The TCP connection to the host failed."}}`

// UptimeCheck is the uptime check bundle (spec §2.7, §3.1, §4.8).
func UptimeCheck() Operation {
	return Operation{
		Slug: "uptime-check", Path: "/v1/bundles/uptime-check", Title: "Uptime check bundle", Tool: "uptime_check", Kind: Bundle, Amount: "15000",
		Result: "UptimeCheckResult", Use: "to learn whether a site is up: `dns`, `ssl-check` and `headers` for the price of the three, with a verdict",
		Summary: "DNS, TLS and HTTPS of a hostname with one verdict for one payment.",
		Description: "One payment, one probe: DNS, the leaf TLS certificate and the HTTPS answer of https://{domain}/ side by side, with the verdict up, degraded or down. " +
			"It is a one-shot probe, not a hosted monitor.",
		Tags:    []string{"uptime", "tls", "http", "bundle"},
		Params:  []Param{domainParam()},
		Example: exampleDomain(),
		Errors:  []fault.Code{fault.InvalidDomain, fault.UptimeCheckTimeout, fault.Overloaded},
		Fields: []Field{
			text("domain", "Normalized FQDN queried"),
			{Name: "verdict", Type: "string", Description: "What the three lookups come to", Schema: "Verdict", Enum: []string{"up", "degraded", "down"}},
			child("dns", "DNS", DNS()), child("ssl", "SSL", SSLCheck()), child("headers", "Headers", Headers()),
		},
		Response: `{"domain":"example.com","verdict":"down","dns":` + addressExample + `,"ssl":` + failedExample + `,"headers":` + failedExample + `}`,
		Deadline: bundle,
	}
}
