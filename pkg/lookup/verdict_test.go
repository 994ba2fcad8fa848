package lookup_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

var update = flag.Bool("update", false, "write what the examples' verdicts are")

// wantLines checks the line that the rules give to each result. The key of a result is the
// expected line: the tone, a space and the text.
func wantLines[R any](t *testing.T, rules []lookup.Verdict, results map[string]R) {
	t.Helper()
	for want, r := range results {
		t.Run(want, func(t *testing.T) {
			if got := verdictLine(rules, r); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestDNSVerdicts(t *testing.T) {
	resultOf := func(typ, rcode string, records ...dns.Record) dns.Result {
		return dns.Result{Domain: "example.com", Type: typ, Rcode: rcode, Records: records}
	}
	address, mx, alias := dns.Address{Address: "192.0.2.1"}, dns.MX{Exchange: "mx1.example.com"}, dns.Target{Target: "b.example.net"}
	wantLines(t, dns.Verdicts(), map[string]dns.Result{
		"good Address 192.0.2.1":                                              resultOf("A", "", address),
		"good 2 addresses":                                                    resultOf("AAAA", "", address, address),
		"good 1 mail server":                                                  resultOf("MX", "", mx),
		"good 2 mail servers":                                                 resultOf("MX", "", dns.MX{Exchange: "."}, mx),
		" The domain accepts no mail":                                         resultOf("MX", "", dns.MX{Exchange: "."}),
		"good 2 text records":                                                 resultOf("TXT", "", dns.TXT{}, dns.TXT{}),
		"good An alias of “b.example.net”":                                    resultOf("CNAME", "", alias),
		"good An alias of a name of other characters":                         resultOf("CNAME", "", dns.Target{Target: `all\032is\032well.example.net`}),
		"good 2 name servers":                                                 resultOf("NS", "", dns.Target{}, dns.Target{}),
		"good Primary server “ns1.example.com”, serial 7":                     resultOf("SOA", "", dns.SOA{MName: "ns1.example.com", Serial: 7}),
		" No TXT records":                                                     resultOf("TXT", "", []dns.Record{}...),
		"warn An alias of “b.example.net”, which does not exist":              resultOf("CNAME", "NXDOMAIN", alias),
		"bad No resolver could answer for example.com (SERVFAIL)":             resultOf("A", "SERVFAIL"),
		"bad A DNAME leads example.com to a name that is too long (YXDOMAIN)": resultOf("A", "YXDOMAIN"),
	})
}

func TestSSLVerdicts(t *testing.T) {
	resultOf := func(expired, notYetValid, match bool, notAfter string) ssl.Result {
		return ssl.Result{Domain: "example.com", Expired: expired, NotYetValid: notYetValid, HostnameMatch: match, NotBefore: "2026-11-27T00:00:00Z", NotAfter: notAfter}
	}
	const nextYear = "2027-08-13T00:00:00Z"
	wantLines(t, ssl.Verdicts(), map[string]ssl.Result{
		"good Certificate for example.com expires 13 August 2027, in 260 days": resultOf(false, false, true, nextYear),
		"bad The certificate expired 16 November 2026, 10 days ago":            resultOf(true, false, false, "2026-11-16T00:00:00Z"),
		"bad The certificate is not valid before 27 November 2026, in 1 day":   resultOf(false, true, true, nextYear),
		"bad The certificate is not for example.com":                           resultOf(false, false, false, nextYear),
	})
}

func TestWhoisVerdicts(t *testing.T) {
	wantLines(t, whois.Verdicts(), map[string]whois.Result{
		" Registered until 13 August 2027 (in 260 days)":                      {ExpiresAt: new("2027-08-13T04:00:00Z")},
		" Registered since 14 August 1995; the registry gives no expiry date": {CreatedAt: new("1995-08-14T04:00:00Z")},
		" Registered; the registry gives no dates":                            {},
	})
}

func TestHeadersVerdicts(t *testing.T) {
	all := headers.Headers{
		ContentSecurityPolicy: new("a"), PermissionsPolicy: new("b"), ReferrerPolicy: new("c"),
		StrictTransportSecurity: new("d"), XContentTypeOptions: new("e"), XFrameOptions: new(""),
	}
	oneMissing, twoHeaders := all, headers.Headers{StrictTransportSecurity: new("max-age=1"), XFrameOptions: new("DENY")}
	oneMissing.ReferrerPolicy = nil
	redirectTo := func(location string) headers.Result {
		return headers.Result{URL: "https://example.com/", Status: 300, Headers: headers.Headers{Location: &location}}
	}
	wantLines(t, headers.Verdicts(), map[string]headers.Result{
		"good HTTP 200. All 6 security headers are set":      {Status: 200, Headers: all},
		"warn HTTP 200. 1 of 6 security headers is missing":  {Status: 200, Headers: oneMissing},
		"warn HTTP 399. 4 of 6 security headers are missing": {Status: 399, Headers: twoHeaders},
		"warn HTTP 299. 6 of 6 security headers are missing": {Status: 299, Headers: redirectTo("/").Headers},
		" HTTP 300: redirects to “www.example.com”":          redirectTo("https://www.example.com/All-is-well."),
		" HTTP 300: redirects to “example.com”":              redirectTo("All is well. The certificate is in date."),
		" HTTP 300: redirects to an address without a host":  redirectTo("mailto:all.is.well@example.com"),
		"warn HTTP 400: the page was not served":             {Status: 400, Headers: twoHeaders},
		"warn HTTP 499: the page was not served":             {Status: 499, Headers: redirectTo("/").Headers},
		"bad The server reports an error: HTTP 500":          {Status: 500, Headers: twoHeaders},
		"warn HTTP 999: the page was not served":             {Status: 999},
	})
}

func TestRedirectVerdicts(t *testing.T) {
	const url, quotedHost = "https://b.example.com/All/is/well", "“b.example.com”"
	traceOf := func(stop redirect.StopReason, statuses ...int) redirect.Result {
		r := redirect.Result{FinalURL: url, HopCount: len(statuses)}
		for _, status := range statuses {
			r.Hops = append(r.Hops, redirect.Hop{Status: status})
		}
		if stop != "" {
			r.StopReason = &stop
		}
		return r
	}
	results := map[string]redirect.Result{
		"good Does not redirect: HTTP 200":                                traceOf("", 200),
		"warn Does not redirect: HTTP 400":                                traceOf("", 400),
		"bad Does not redirect: HTTP 500":                                 traceOf("", 500),
		"good Ends at " + quotedHost + " with HTTP 399, after 2 requests": traceOf("", 301, 399),
		"warn Ends at " + quotedHost + " with HTTP 400, after 3 requests": traceOf("", 301, 302, 400),
		"bad Ends at " + quotedHost + " with HTTP 500, after 4 requests":  traceOf("", 301, 302, 302, 500),
		"good Ends at " + quotedHost + " with HTTP 200, after 5 requests": traceOf("", 301, 302, 302, 302, 200),
		"warn Still redirects after 5 requests, at " + quotedHost:         traceOf(redirect.MaxHops, 301, 302, 302, 302, 301),
		"bad Redirects in a loop: " + quotedHost + " leads back":          traceOf(redirect.Loop, 301),
		"bad " + quotedHost + " redirects without saying where":           traceOf(redirect.MissingLocation, 301),
	}
	for stop, target := range map[redirect.StopReason]string{
		redirect.InvalidLocation: "a Location that is not a usable URL", redirect.InsecureRedirect: "a URL that is not HTTPS",
		redirect.BlockedHost: "a host that is not a public domain name", redirect.BlockedPort: "a port other than 443",
		redirect.BlockedAddress: "an address that is not public", redirect.NXDomain: "a domain that does not exist",
		redirect.ConnectFailed: "a host that cannot be connected to", redirect.HandshakeFailed: "a host whose TLS handshake fails",
		redirect.HTTPFailed: "a host where the HTTPS request fails",
	} {
		results["bad "+quotedHost+" redirects to "+target] = traceOf(stop, 301)
	}
	wantLines(t, redirect.Verdicts(), results)
}

// hostIntel makes a HostIntelResult without problems, applies the given change, and returns
// the result. It is used to test the rules of both bundles.
func hostIntel(change func(*bundle.HostIntelResult)) bundle.HostIntelResult {
	h := bundle.HostIntelResult{Domain: "example.com"}
	h.SSL.Result = ssl.Result{HostnameMatch: true, NotBefore: "2026-11-27T00:00:00Z", NotAfter: "2027-08-13T00:00:00Z"}
	h.Whois.Result = whois.Result{ExpiresAt: new("2028-01-01T00:00:00Z")}
	change(&h)
	return h
}

func TestBundleVerdicts(t *testing.T) {
	connectFault := lookup.Faultf(lookup.ConnectFailed, nil, "Nobody is there.")
	noProblems := hostIntel(func(*bundle.HostIntelResult) {})
	noDates := hostIntel(func(h *bundle.HostIntelResult) { h.Whois.Result.ExpiresAt = nil })
	expired := hostIntel(func(h *bundle.HostIntelResult) {
		h.SSL.Result.Expired, h.SSL.Result.NotAfter = true, "2020-12-31T23:59:59Z"
	})
	notYetValid := hostIntel(func(h *bundle.HostIntelResult) { h.SSL.Result.NotYetValid = true })
	wrongName := hostIntel(func(h *bundle.HostIntelResult) { h.SSL.Result.HostnameMatch = false })
	noName := hostIntel(func(h *bundle.HostIntelResult) {
		h.DNS.Fault, h.SSL.Fault = lookup.Faultf(lookup.NXDomain, nil, "An alias of none."), connectFault
	})
	noRecords := hostIntel(func(h *bundle.HostIntelResult) { h.DNS.Fault = connectFault })
	noCertificate := hostIntel(func(h *bundle.HostIntelResult) { h.SSL.Fault = connectFault })
	wantLines(t, bundle.HostIntelVerdicts(), map[string]bundle.HostIntelResult{
		"good Certificate valid until 13 August 2027; domain registered until 1 January 2028": noProblems,
		"good Certificate valid until 13 August 2027; domain registered":                      noDates,
		"bad The certificate expired 31 December 2020, 5 years ago":                           expired,
		"bad The certificate is not valid before 27 November 2026":                            notYetValid,
		"bad The certificate is not for example.com":                                          wrongName,
		"bad An alias of none.":                 noName,
		"warn No DNS records: Nobody is there.": noRecords,
		"bad No certificate: Nobody is there.":  noCertificate,
		"warn Certificate valid until 13 August 2027; no registry data: Nobody is there.": hostIntel(func(h *bundle.HostIntelResult) {
			h.Whois.Fault = connectFault
		}),
	})
	uptimeOf := func(h bundle.HostIntelResult, verdict bundle.Verdict, status int, headers *fault.Error) bundle.UptimeResult {
		u := bundle.UptimeResult{Domain: h.Domain, Verdict: verdict, DNS: h.DNS, SSL: h.SSL}
		u.Headers.Result.Status, u.Headers.Fault = status, headers
		return u
	}
	wantLines(t, bundle.UptimeVerdicts(), map[string]bundle.UptimeResult{
		"good Up: HTTP 200, with a certificate that is valid for example.com": uptimeOf(noProblems, bundle.Up, 200, nil),
		"warn Degraded: HTTP 500": uptimeOf(noProblems, bundle.Degraded, 500, nil),
		"warn Degraded: the certificate expired 31 December 2020, 5 years ago": uptimeOf(expired, bundle.Degraded, 200, nil),
		"warn Degraded: the certificate is not valid before 27 November 2026":  uptimeOf(notYetValid, bundle.Degraded, 200, nil),
		"warn Degraded: the certificate is not for example.com":                uptimeOf(wrongName, bundle.Degraded, 200, nil),
		"bad Down: An alias of none.":                                          uptimeOf(noName, bundle.Down, 200, nil),
		"bad Down: Nobody is there.":                                           uptimeOf(noCertificate, bundle.Down, 200, nil),
		"bad Down: Nobody answers.":                                            uptimeOf(noProblems, bundle.Down, 0, lookup.Faultf(lookup.HTTPFailed, nil, "Nobody answers.")),
	})
}

// TestVerdictsOfExamples applies the rules of each operation to the operation's example answer
// in the catalog. It compares the lines with a golden file, or writes that file with -update.
func TestVerdictsOfExamples(t *testing.T) {
	const golden = "testdata/examples.txt"
	var lines strings.Builder
	for _, o := range catalog.All() {
		line := verdictLine(o.Verdicts, json.RawMessage(o.Response))
		if strings.TrimSpace(line) == "" {
			t.Errorf("%s: its verdicts have no line for its example", o.Slug)
		}
		fmt.Fprintf(&lines, "%s: %s\n", o.Slug, line)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(lines.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if d := cmp.Diff(string(text), lines.String()); err != nil || d != "" {
		t.Errorf("%s, which go test ./pkg/lookup -update writes: %v (-file +verdicts)\n%s", golden, err, d)
	}
}
