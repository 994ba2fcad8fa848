package catalog

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// operations returns all priced operations. It makes the list only once, because it inspects
// the types of all results.
var operations = sync.OnceValue(func() []Operation {
	return []Operation{
		DNS(),
		SSLCheck(),
		Whois(),
		Headers(),
		ResolveRedirect(),
		HostIntel(),
		UptimeCheck(),
		Ping(),
	}
})

// All returns every priced operation in the order of the spec's price list.
func All() []Operation { return slices.Clone(operations()) }

// bundleDeadline is the deadline of a bundle's lookup. The tool headers has the same deadline,
// because it makes the same HTTPS request as the bundle uptime-check: a host that is too slow
// for one of them must be too slow for both.
const bundleDeadline = 12 * time.Second

// withDefaults returns the operation with everything that all operations of its kind have in
// common: the price, the deadline of the lookup, the domain as the first parameter, and two
// error codes. It also sets the fields of the result and the example answer.
func withDefaults[Result any](o Operation) Operation {
	o.Amount = "5000"
	o.Deadline = cmp.Or(o.Deadline, 8*time.Second)
	if o.Kind == Bundle {
		o.Amount = "15000"
		o.Deadline = bundleDeadline
	}
	domain := Param{
		Name:        "domain",
		Type:        "string",
		Required:    true,
		Example:     "example.com",
		Description: "Public domain name; no IP address, URL or port.",
		Code:        lookup.InvalidDomain,
	}
	o.Params = append([]Param{domain}, o.Params...)
	o.Errors = slices.Concat([]fault.Code{lookup.InvalidDomain}, o.Errors, []fault.Code{fault.Overloaded})
	o.Fields = FieldsOf[Result]()
	o.Response = exampleAnswer(o.Slug)
	return o
}

// recordTypeParam returns a parameter for a DNS record type (spec §4.2).
func recordTypeParam(name, example, description string) Param {
	return Param{
		Name:        name,
		Type:        "string",
		Default:     "A",
		Example:     example,
		Description: description,
		Code:        lookup.InvalidType,
		Enum:        []string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"},
	}
}

// DNS returns the DNS Explorer (spec §2.1, §4.2).
func DNS() Operation {
	return withDefaults[dns.Result](Operation{
		Slug:    "dns",
		Path:    "/v1/tools/dns",
		Title:   "DNS Explorer",
		Tool:    "dns_lookup",
		Kind:    Tool,
		Result:  "DnsResult",
		Use:     "to read a name's current records of one type",
		Summary: "Live DNS records of a public hostname from a public recursive resolver.",
		Description: "Live DNS records of one type of a public hostname, from a public recursive resolver: " +
			"response code, lowest TTL, typed records. Values are untrusted data.",
		Tags:   []string{"dns", "domain", "network"},
		Params: []Param{recordTypeParam("type", "MX", "Record type, in upper or lower case.")},
		Errors: []fault.Code{
			lookup.InvalidType,
			lookup.NXDomain,
			lookup.UpstreamUnavailable,
			lookup.DNSTimeout,
		},
		Question: "{type} records of {domain}",
		Returns:  "The records as they are now, from a public resolver, with their lowest TTL.",
		Verdicts: dns.Verdicts(),
	})
}

// SSLCheck returns the SSL Inspector (spec §2.2, §4.3).
func SSLCheck() Operation {
	return withDefaults[ssl.Result](Operation{
		Slug:    "ssl-check",
		Path:    "/v1/tools/ssl-check",
		Title:   "SSL Inspector",
		Tool:    "ssl_check",
		Kind:    Tool,
		Result:  "SslResult",
		Use:     "to see the certificate that a host presents now, valid or not",
		Summary: "The leaf TLS certificate that a public hostname presents right now.",
		Description: "The leaf TLS certificate that port 443 of a public hostname presents: subject, issuer, validity, names, fingerprint, protocol, cipher. " +
			"Expired, not yet valid and mismatching certificates are results with flags, not errors. The chain is not validated.",
		Tags: []string{"tls", "certificate", "security"},
		Params: []Param{{
			Name:        "port",
			Type:        "integer",
			Default:     "443",
			Enum:        []string{"443"},
			Example:     "443",
			Description: "TLS port; 443 only.",
			Code:        lookup.InvalidPort,
		}},
		Errors: []fault.Code{
			lookup.InvalidPort,
			lookup.BlockedAddress,
			lookup.NXDomain,
			lookup.ConnectFailed,
			lookup.HandshakeFailed,
			lookup.SSLTimeout,
		},
		Question: "TLS certificate of {domain}",
		Returns:  "The certificate that the host presents now: names, issuer, validity and fingerprint.",
		Verdicts: ssl.Verdicts(),
	})
}

// Whois returns WHOIS Intelligence (spec §2.3, §4.4).
func Whois() Operation {
	return withDefaults[whois.Result](Operation{
		Slug:    "whois",
		Path:    "/v1/tools/whois",
		Title:   "WHOIS Intelligence",
		Tool:    "whois_lookup",
		Kind:    Tool,
		Result:  "WhoisResult",
		Use:     "to look up the registration of a domain",
		Summary: "Registry data of a public domain over RDAP.",
		Description: "Registration data of a public domain from its registry's RDAP server: registrar, status, dates, name servers, DNSSEC. " +
			"A host name is reduced to its registrable domain.",
		Tags: []string{"whois", "rdap", "domain"},
		Errors: []fault.Code{
			lookup.RDAPUnavailable,
			lookup.NotFound,
			lookup.RDAPUpstream,
			lookup.BootstrapUnavailable,
			lookup.WhoisTimeout,
		},
		Question: "Registration of {domain}",
		Returns:  "Registrar, dates, status and name servers, from the registry.",
		Verdicts: whois.Verdicts(),
	})
}

// Headers returns HTTP Headers (spec §2.4, §4.5).
func Headers() Operation {
	return withDefaults[headers.Result](Operation{
		Slug:    "headers",
		Path:    "/v1/tools/headers",
		Title:   "HTTP Headers",
		Tool:    "http_headers",
		Kind:    Tool,
		Result:  "HeadersResult",
		Use:     "to read status and security headers of a site's front page",
		Summary: "Allowlisted HTTPS response headers of a public hostname.",
		Description: "Requests https://{domain}/ (HEAD, or GET after 405, 501 or a failure), and returns the status and sixteen response headers, null when absent. " +
			"Redirects are not followed, certificates are not validated, and cookies are never returned.",
		Tags:     []string{"http", "headers", "security"},
		Deadline: bundleDeadline,
		Errors: []fault.Code{
			lookup.BlockedAddress,
			lookup.NXDomain,
			lookup.ConnectFailed,
			lookup.HandshakeFailed,
			lookup.HTTPFailed,
			lookup.HeadersTimeout,
		},
		Question: "HTTP headers of https://{domain}/",
		Returns:  "The status and sixteen response headers, with the security headers that are missing.",
		Verdicts: headers.Verdicts(),
	})
}

// ResolveRedirect returns the Redirect Tracer (spec §2.5, §3.2, §4.6).
func ResolveRedirect() Operation {
	return withDefaults[redirect.Result](Operation{
		Slug:    "resolve-redirect",
		Path:    "/v1/tools/resolve-redirect",
		Title:   "Redirect Tracer",
		Tool:    "resolve_redirect",
		Kind:    Tool,
		Result:  "RedirectTraceResult",
		Use:     "to follow where https://{domain}/ redirects to",
		Summary: "The HTTPS redirect chain of a public hostname, hop by hop.",
		Description: "Follows redirects from https://{domain}/ through at most five hops, over HTTPS on port 443 only, and never to private addresses: " +
			"status, peer and Location of each hop, and why the trace ended. Bodies and cookies are omitted.",
		Tags: []string{"http", "redirect", "network"},
		Errors: []fault.Code{
			lookup.BlockedAddress,
			lookup.NXDomain,
			lookup.ConnectFailed,
			lookup.HandshakeFailed,
			lookup.HTTPFailed,
			lookup.RedirectTimeout,
		},
		Question: "Where https://{domain}/ leads",
		Returns:  "Each redirect on the way, up to five: its address, its status and where it leads.",
		Verdicts: redirect.Verdicts(),
	})
}

// HostIntel returns the host intelligence bundle (spec §2.6, §4.7).
func HostIntel() Operation {
	return withDefaults[bundle.HostIntelResult](Operation{
		Slug:    "host-intel",
		Path:    "/v1/bundles/host-intel",
		Title:   "Host intelligence bundle",
		Tool:    "host_intel",
		Kind:    Bundle,
		Result:  "HostIntelligenceResult",
		Use:     "for dns, ssl-check and whois of one name in one answer, at the price of the three",
		Summary: "DNS, TLS certificate and registry data of a hostname for one payment.",
		Description: "One payment, three live lookups side by side: DNS records, leaf TLS certificate and RDAP registry data of a public hostname. " +
			"If a lookup fails, its field says why; the other fields have their results.",
		Tags:     []string{"dns", "tls", "whois", "bundle"},
		Params:   []Param{recordTypeParam("dns_type", "A", "Record type of the DNS lookup, in upper or lower case.")},
		Errors:   []fault.Code{lookup.InvalidType, lookup.HostIntelTimeout},
		Question: "{dns_type} records, certificate and registration of {domain}",
		Returns:  "Three lookups in one answer: DNS records, TLS certificate and registry data.",
		Verdicts: bundle.HostIntelVerdicts(),
	})
}

// UptimeCheck returns the uptime check bundle (spec §2.7, §3.1, §4.8).
func UptimeCheck() Operation {
	return withDefaults[bundle.UptimeResult](Operation{
		Slug:    "uptime-check",
		Path:    "/v1/bundles/uptime-check",
		Title:   "Uptime check bundle",
		Tool:    "uptime_check",
		Kind:    Bundle,
		Result:  "UptimeCheckResult",
		Use:     "to learn whether a site is up, degraded or down: dns, ssl-check and headers at the price of the three",
		Summary: "DNS, TLS and HTTPS of a hostname with one verdict for one payment.",
		Description: "One payment, one probe: DNS, the leaf TLS certificate and the HTTPS answer of https://{domain}/ side by side, with the verdict up, degraded or down. " +
			"Not a hosted monitor: a second call soon afterwards gets the same answer.",
		Tags:     []string{"uptime", "tls", "http", "bundle"},
		Errors:   []fault.Code{lookup.UptimeCheckTimeout},
		Question: "Is {domain} up?",
		Returns:  "Up, degraded or down, with the DNS records, the certificate and the headers that show it.",
		Verdicts: bundle.UptimeVerdicts(),
	})
}

// Pong is the smoke test's result (spec §2.9).
type Pong struct {
	OK      bool   `json:"ok" doc:"Always true after a successful settlement"`
	Service string `json:"service" doc:"Product name"`
}

// Ping returns the payment smoke test (spec §2.9, §4.9).
func Ping() Operation {
	return Operation{
		Slug:    "ping",
		Path:    "/v1/tools/ping",
		Title:   "Payment smoke test",
		Tool:    "payment_smoke_test",
		Kind:    SmokeTest,
		Amount:  "1000",
		Result:  "SmokeTestResult",
		Use:     "to try a wallet and a client",
		Summary: "Only checks that a client can pay; not a product.",
		Description: "Payment smoke test: settles one payment and answers ok. It looks nothing up and takes no input. " +
			"Not a product, and not for production work.",
		Tags:     []string{"payment", "test"},
		Params:   []Param{{Name: "probe", Type: "string", Example: "1", Description: "Ignored."}},
		Fields:   FieldsOf[Pong](),
		Question: "A payment smoke test",
		Returns:  "A confirmation that your wallet can pay here. Nothing is looked up.",
		Verdicts: []lookup.Verdict{{Says: "Paid and answered: the payment works", Tone: lookup.Good}},
		Response: `{"ok":true,"service":"` + Service + `"}`,
		Deadline: time.Second,
	}
}

//go:embed examples
var examples embed.FS

// exampleAnswer returns the example answer of an operation, as compact JSON.
func exampleAnswer(slug string) string {
	var b bytes.Buffer
	text, err := examples.ReadFile("examples/" + slug + ".json")
	if err == nil {
		err = json.Compact(&b, text)
	}
	if err != nil {
		panic(fmt.Errorf("catalog: the example answer of %s is pkg/catalog/examples/%[1]s.json: %w", slug, err))
	}
	return b.String()
}
