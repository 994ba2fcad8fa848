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

// hold checks the line that the rules give to each result. The key of a result is the expected
// line: the tone, a space and the text.
func hold[R any](t *testing.T, rules []lookup.Verdict, results map[string]R) {
	t.Helper()
	for want, r := range results {
		t.Run(want, func(t *testing.T) {
			if got := verdict(rules, r); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestDNSVerdicts(t *testing.T) {
	of := func(typ, rcode string, records ...dns.Record) dns.Result {
		return dns.Result{Domain: "example.com", Type: typ, Rcode: rcode, Records: records}
	}
	address, mx, alias := dns.Address{Address: "192.0.2.1"}, dns.MX{Exchange: "mx1.example.com"}, dns.Target{Target: "b.example.net"}
	hold(t, dns.Verdicts(), map[string]dns.Result{
		"good Address 192.0.2.1":                                              of("A", "", address),
		"good 2 addresses":                                                    of("AAAA", "", address, address),
		"good 1 mail server":                                                  of("MX", "", mx),
		"good 2 mail servers":                                                 of("MX", "", dns.MX{Exchange: "."}, mx),
		" The domain accepts no mail":                                         of("MX", "", dns.MX{Exchange: "."}),
		"good 2 text records":                                                 of("TXT", "", dns.TXT{}, dns.TXT{}),
		"good An alias of “b.example.net”":                                    of("CNAME", "", alias),
		"good An alias of a name of other characters":                         of("CNAME", "", dns.Target{Target: `all\032is\032well.example.net`}),
		"good 2 name servers":                                                 of("NS", "", dns.Target{}, dns.Target{}),
		"good Primary server “ns1.example.com”, serial 7":                     of("SOA", "", dns.SOA{MName: "ns1.example.com", Serial: 7}),
		" No TXT records":                                                     of("TXT", "", []dns.Record{}...),
		"warn An alias of “b.example.net”, which does not exist":              of("CNAME", "NXDOMAIN", alias),
		"bad No resolver could answer for example.com (SERVFAIL)":             of("A", "SERVFAIL"),
		"bad A DNAME leads example.com to a name that is too long (YXDOMAIN)": of("A", "YXDOMAIN"),
	})
}

func TestSSLVerdicts(t *testing.T) {
	of := func(expired, early, match bool, until string) ssl.Result {
		return ssl.Result{Domain: "example.com", Expired: expired, NotYetValid: early, HostnameMatch: match, NotBefore: "2026-11-27T00:00:00Z", NotAfter: until}
	}
	const later = "2027-08-13T00:00:00Z"
	hold(t, ssl.Verdicts(), map[string]ssl.Result{
		"good Certificate for example.com expires 13 August 2027, in 260 days": of(false, false, true, later),
		"bad The certificate expired 16 November 2026, 10 days ago":            of(true, false, false, "2026-11-16T00:00:00Z"),
		"bad The certificate is not valid before 27 November 2026, in 1 day":   of(false, true, true, later),
		"bad The certificate is not for example.com":                           of(false, false, false, later),
	})
}

func TestWhoisVerdicts(t *testing.T) {
	hold(t, whois.Verdicts(), map[string]whois.Result{
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
	oneShort, strict := all, headers.Headers{StrictTransportSecurity: new("max-age=1"), XFrameOptions: new("DENY")}
	oneShort.ReferrerPolicy = nil
	to := func(location string) headers.Result {
		return headers.Result{URL: "https://example.com/", Status: 300, Headers: headers.Headers{Location: &location}}
	}
	hold(t, headers.Verdicts(), map[string]headers.Result{
		"good HTTP 200. All 6 security headers are set":      {Status: 200, Headers: all},
		"warn HTTP 200. 1 of 6 security headers is missing":  {Status: 200, Headers: oneShort},
		"warn HTTP 399. 4 of 6 security headers are missing": {Status: 399, Headers: strict},
		"warn HTTP 299. 6 of 6 security headers are missing": {Status: 299, Headers: to("/").Headers},
		" HTTP 300: redirects to “www.example.com”":          to("https://www.example.com/All-is-well."),
		" HTTP 300: redirects to “example.com”":              to("All is well. The certificate is in date."),
		" HTTP 300: redirects to an address without a host":  to("mailto:all.is.well@example.com"),
		"warn HTTP 400: the page was not served":             {Status: 400, Headers: strict},
		"warn HTTP 499: the page was not served":             {Status: 499, Headers: to("/").Headers},
		"bad The server reports an error: HTTP 500":          {Status: 500, Headers: strict},
		"warn HTTP 999: the page was not served":             {Status: 999},
	})
}

func TestRedirectVerdicts(t *testing.T) {
	const url, at = "https://b.example.com/All/is/well", "“b.example.com”"
	of := func(stop redirect.StopReason, statuses ...int) redirect.Result {
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
		"good Does not redirect: HTTP 200":                        of("", 200),
		"warn Does not redirect: HTTP 400":                        of("", 400),
		"bad Does not redirect: HTTP 500":                         of("", 500),
		"good Ends at " + at + " with HTTP 399, after 2 requests": of("", 301, 399),
		"warn Ends at " + at + " with HTTP 400, after 3 requests": of("", 301, 302, 400),
		"bad Ends at " + at + " with HTTP 500, after 4 requests":  of("", 301, 302, 302, 500),
		"good Ends at " + at + " with HTTP 200, after 5 requests": of("", 301, 302, 302, 302, 200),
		"warn Still redirects after 5 requests, at " + at:         of(redirect.MaxHops, 301, 302, 302, 302, 301),
		"bad Redirects in a loop: " + at + " leads back":          of(redirect.Loop, 301),
		"bad " + at + " redirects without saying where":           of(redirect.MissingLocation, 301),
	}
	for stop, to := range map[redirect.StopReason]string{
		redirect.InvalidLocation: "a Location that is not a usable URL", redirect.InsecureRedirect: "a URL that is not HTTPS",
		redirect.BlockedHost: "a host that is not a public domain name", redirect.BlockedPort: "a port other than 443",
		redirect.BlockedAddress: "an address that is not public", redirect.NXDomain: "a domain that does not exist",
		redirect.ConnectFailed: "a host that cannot be connected to", redirect.HandshakeFailed: "a host whose TLS handshake fails",
		redirect.HTTPFailed: "a host where the HTTPS request fails",
	} {
		results["bad "+at+" redirects to "+to] = of(stop, 301)
	}
	hold(t, redirect.Verdicts(), results)
}

// host makes a HostIntelResult without problems, applies the given change and returns the
// result. The rules of both bundles are tested with it.
func host(change func(*bundle.HostIntelResult)) bundle.HostIntelResult {
	h := bundle.HostIntelResult{Domain: "example.com"}
	h.SSL.Result = ssl.Result{HostnameMatch: true, NotBefore: "2026-11-27T00:00:00Z", NotAfter: "2027-08-13T00:00:00Z"}
	h.Whois.Result = whois.Result{ExpiresAt: new("2028-01-01T00:00:00Z")}
	change(&h)
	return h
}

func TestBundleVerdicts(t *testing.T) {
	failed := lookup.Faultf(lookup.ConnectFailed, nil, "Nobody is there.")
	inOrder := host(func(*bundle.HostIntelResult) {})
	noDates := host(func(h *bundle.HostIntelResult) { h.Whois.Result.ExpiresAt = nil })
	expired := host(func(h *bundle.HostIntelResult) {
		h.SSL.Result.Expired, h.SSL.Result.NotAfter = true, "2020-12-31T23:59:59Z"
	})
	early := host(func(h *bundle.HostIntelResult) { h.SSL.Result.NotYetValid = true })
	another := host(func(h *bundle.HostIntelResult) { h.SSL.Result.HostnameMatch = false })
	noName := host(func(h *bundle.HostIntelResult) {
		h.DNS.Fault, h.SSL.Fault = lookup.Faultf(lookup.NXDomain, nil, "An alias of none."), failed
	})
	noRecords := host(func(h *bundle.HostIntelResult) { h.DNS.Fault = failed })
	noCertificate := host(func(h *bundle.HostIntelResult) { h.SSL.Fault = failed })
	hold(t, bundle.HostIntelVerdicts(), map[string]bundle.HostIntelResult{
		"good Certificate valid until 13 August 2027; domain registered until 1 January 2028": inOrder,
		"good Certificate valid until 13 August 2027; domain registered":                      noDates,
		"bad The certificate expired 31 December 2020, 5 years ago":                           expired,
		"bad The certificate is not valid before 27 November 2026":                            early,
		"bad The certificate is not for example.com":                                          another,
		"bad An alias of none.":                 noName,
		"warn No DNS records: Nobody is there.": noRecords,
		"bad No certificate: Nobody is there.":  noCertificate,
		"warn Certificate valid until 13 August 2027; no registry data: Nobody is there.": host(func(h *bundle.HostIntelResult) {
			h.Whois.Fault = failed
		}),
	})
	up := func(h bundle.HostIntelResult, verdict bundle.Verdict, status int, headers *fault.Error) bundle.UptimeResult {
		u := bundle.UptimeResult{Domain: h.Domain, Verdict: verdict, DNS: h.DNS, SSL: h.SSL}
		u.Headers.Result.Status, u.Headers.Fault = status, headers
		return u
	}
	hold(t, bundle.UptimeVerdicts(), map[string]bundle.UptimeResult{
		"good Up: HTTP 200, with a certificate that is valid for example.com": up(inOrder, bundle.Up, 200, nil),
		"warn Degraded: HTTP 500": up(inOrder, bundle.Degraded, 500, nil),
		"warn Degraded: the certificate expired 31 December 2020, 5 years ago": up(expired, bundle.Degraded, 200, nil),
		"warn Degraded: the certificate is not valid before 27 November 2026":  up(early, bundle.Degraded, 200, nil),
		"warn Degraded: the certificate is not for example.com":                up(another, bundle.Degraded, 200, nil),
		"bad Down: An alias of none.":                                          up(noName, bundle.Down, 200, nil),
		"bad Down: Nobody is there.":                                           up(noCertificate, bundle.Down, 200, nil),
		"bad Down: Nobody answers.":                                            up(inOrder, bundle.Down, 0, lookup.Faultf(lookup.HTTPFailed, nil, "Nobody answers.")),
	})
}

// TestVerdictsOfExamples applies the rules of each operation to the operation's example answer
// in the catalog. It compares the lines with a golden file, or writes that file with -update.
func TestVerdictsOfExamples(t *testing.T) {
	const golden = "testdata/examples.txt"
	var lines strings.Builder
	for _, o := range catalog.All() {
		line := verdict(o.Verdicts, json.RawMessage(o.Response))
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
