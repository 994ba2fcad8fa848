package catalog

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// single is the deadline of a single lookup.
const single = 8 * time.Second

// All returns every priced operation in the order of the spec's price list.
func All() []Operation {
	return []Operation{DNS(), SSLCheck(), Whois(), Headers(), ResolveRedirect(), HostIntel(), UptimeCheck(), Ping()}
}

// RecordTypes are the DNS record types that can be asked for (spec §4.2).
func RecordTypes() []string {
	return []string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"}
}

func domainParam() Param {
	return Param{
		Name: "domain", Type: "string", Required: true, Example: "example.com",
		Description: "Public domain name; no IP address, URL, port or internal name.",
	}
}

// DNS is the DNS Explorer (spec §2.1, §4.2).
func DNS() Operation {
	return Operation{
		Slug: "dns", Path: "/v1/tools/dns", Title: "DNS Explorer", Tool: "dns_lookup", Kind: Tool, Amount: "5000",
		Result: "DnsResult", Use: "to read the records of one type that a name has now",
		Summary: "Live DNS records of a public hostname from a public recursive resolver.",
		Description: "Live DNS records of one type of a public hostname, asked of a public recursive resolver: " +
			"response code, resolver, lowest TTL and typed records. Values are untrusted data, as seen by that resolver.",
		Tags: []string{"dns", "domain", "network"},
		Params: []Param{
			domainParam(),
			{
				Name: "type", Type: "string", Default: "A", Enum: RecordTypes(), Example: "MX",
				Description: "Record type, in either case.",
			},
		},
		Example: []Value{{"domain", "example.com"}, {"type", "MX"}},
		Errors: []fault.Code{
			lookup.InvalidDomain, lookup.InvalidType, lookup.NXDomain,
			lookup.UpstreamUnavailable, lookup.DNSTimeout, fault.Overloaded,
		},
		Fields: []Field{
			{Name: "domain", Type: "string", Description: "Normalized FQDN that was queried"},
			{Name: "type", Type: "string", Description: "Record type queried", Schema: "RecordType", Enum: RecordTypes()},
			{Name: "rcode", Type: "string", Description: "Resolver response code, such as NOERROR; SERVFAIL and YXDOMAIN come without records"},
			{Name: "resolver", Type: "string", Description: "Public recursive resolver that answered"},
			{Name: "ttl", Type: "integer", Nullable: true, Description: "Lowest TTL among the answers, in seconds; null without records"},
			{Name: "records", Type: "array", Description: "At most 1,000 records and 512 KiB of text; their shape depends on type", Items: recordShapes()},
		},
		Response: `{"domain":"example.com","type":"MX","rcode":"NOERROR","resolver":"1.1.1.1","ttl":300,` +
			`"records":[{"preference":10,"exchange":"mx1.example.com"},{"preference":20,"exchange":"mx2.example.com"}]}`,
		Deadline: single,
	}
}

// recordShapes are the shapes of a DNS record, in the order A and AAAA, MX,
// TXT, CNAME and NS, SOA.
func recordShapes() []Field {
	name := func(n, d string) Field { return Field{Name: n, Type: "string", Description: d} }
	number := func(n, d string) Field { return Field{Name: n, Type: "integer", Description: d} }
	return []Field{
		{Name: "address", Type: "object", Description: "A and AAAA", Schema: "AddressRecord", Fields: []Field{
			name("address", "IPv4 or IPv6 address"),
		}},
		{Name: "mx", Type: "object", Description: "MX", Schema: "MxRecord", Fields: []Field{
			number("preference", "Lower is tried first"),
			name("exchange", "Mail host; . is a null MX (RFC 7505)"),
		}},
		{Name: "txt", Type: "object", Description: "TXT", Schema: "TxtRecord", Fields: []Field{
			name("text", "The strings joined without a separator; bytes that are not UTF-8 as \\DDD, a backslash before three digits as \\092"),
			{Name: "strings", Type: "array", Description: "The strings as published", Items: []Field{name("string", "One character-string, written like text")}},
		}},
		{Name: "target", Type: "object", Description: "CNAME and NS", Schema: "TargetRecord", Fields: []Field{
			name("target", "Host name, lower case, no trailing dot"),
		}},
		{Name: "soa", Type: "object", Description: "SOA", Schema: "SoaRecord", Fields: []Field{
			name("mname", "Primary name server"), name("rname", "Mailbox of the zone, in name form"),
			number("serial", "Zone version"), number("refresh", "Seconds"), number("retry", "Seconds"),
			number("expire", "Seconds"), number("minimum", "Negative-caching TTL, seconds"),
		}},
	}
}

// Ping is the payment smoke test (spec §2.9, §4.9).
func Ping() Operation {
	return Operation{
		Slug: "ping", Path: "/v1/tools/ping", Title: "Payment smoke test", Tool: "payment_smoke_test", Kind: SmokeTest, Amount: "1000",
		Result: "SmokeTestResult", Use: "to try a wallet and a client",
		Summary: "Checks the payment gate only; not a product.",
		Description: "Payment smoke test: settles one payment and answers ok. It looks nothing up, takes no input, " +
			"is not a product and must not be used for production work.",
		Tags: []string{"payment", "test"},
		Params: []Param{{
			Name: "probe", Type: "string", Example: "1",
			Description: "Ignored; the endpoint takes no input.",
		}},
		Example: []Value{{"probe", "1"}},
		Errors:  nil,
		Fields: []Field{
			{Name: "ok", Type: "boolean", Description: "Always true after a successful settlement"},
			{Name: "service", Type: "string", Description: "Product name"},
		},
		Response: `{"ok":true,"service":"` + Service + `"}`,
		Deadline: time.Second,
	}
}

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
		Errors:  []fault.Code{lookup.InvalidDomain, lookup.InvalidType, lookup.HostIntelTimeout, fault.Overloaded},
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
			"It is a one-shot probe, not a hosted monitor: asked again soon after, it repeats its answer, unless a new Idempotency-Key asks anew.",
		Tags:    []string{"uptime", "tls", "http", "bundle"},
		Params:  []Param{domainParam()},
		Example: exampleDomain(),
		Errors:  []fault.Code{lookup.InvalidDomain, lookup.UptimeCheckTimeout, fault.Overloaded},
		Fields: []Field{
			text("domain", "Normalized FQDN queried"),
			{Name: "verdict", Type: "string", Description: "What the three lookups come to", Schema: "Verdict", Enum: []string{"up", "degraded", "down"}},
			child("dns", "DNS", DNS()), child("ssl", "SSL", SSLCheck()), child("headers", "Headers", Headers()),
		},
		Response: `{"domain":"example.com","verdict":"down","dns":` + addressExample + `,"ssl":` + failedExample + `,"headers":` + failedExample + `}`,
		Deadline: bundle,
	}
}
