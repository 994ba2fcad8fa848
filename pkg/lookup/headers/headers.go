// Package headers requests https://{domain}/. It returns the status of the response and
// sixteen of the response's headers, which tell how a site is secured, cached and served. (The
// service offers this lookup as "HTTP Headers": spec §2.4, §4.5.)
//
// The package connects to a host only if all addresses of the host are public. A result holds
// only the sixteen headers of the spec, so it contains no cookies. When a call returns, all
// its connections are closed. The package verifies no certificate, follows no redirect and
// reads no body.
package headers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Query is the query of spec §4.5.
type Query = guard.Query

// Codes returns the codes of the errors that parsing a query and Client.Lookup can return.
func Codes() []fault.Code { return append(origin.Codes(), lookup.HeadersTimeout) }

// Result is the headers result of spec §2.4.
type Result struct {
	Domain  string  `json:"domain" doc:"Normalized FQDN fetched"`
	URL     string  `json:"url" doc:"Always https://{domain}/"`
	Method  string  `json:"method" doc:"Method of the answered request" enum:"HEAD,GET" schema:"ProbeMethod"`
	Status  int     `json:"status" doc:"HTTP status of the origin"`
	PeerIP  string  `json:"peer_ip" doc:"Peer IP address"`
	Headers Headers `json:"headers" doc:"Sixteen headers" schema:"ResponseHeaders"`
}

// Headers holds the response headers that spec §2.4 allows. A header is nil if the origin did
// not send it, and "" if the origin sent it empty. The origin may send several fields of one
// header. If the header is a list of values, the values of all these fields are joined with a
// comma and a space. Otherwise only the first field is used. origin.Text converts the values to
// UTF-8.
type Headers struct {
	AccessControlAllowOrigin        *string `json:"access-control-allow-origin" doc:"As the origin sent it; null if not sent"`
	CacheControl                    *string `json:"cache-control" doc:"As the origin sent it; null if not sent"`
	ContentSecurityPolicy           *string `json:"content-security-policy" doc:"As the origin sent it; null if not sent" show:"expected"`
	ContentSecurityPolicyReportOnly *string `json:"content-security-policy-report-only" doc:"As the origin sent it; null if not sent"`
	ContentType                     *string `json:"content-type" doc:"As the origin sent it; null if not sent"`
	CrossOriginOpenerPolicy         *string `json:"cross-origin-opener-policy" doc:"As the origin sent it; null if not sent"`
	CrossOriginResourcePolicy       *string `json:"cross-origin-resource-policy" doc:"As the origin sent it; null if not sent"`
	Location                        *string `json:"location" doc:"As the origin sent it; null if not sent"`
	PermissionsPolicy               *string `json:"permissions-policy" doc:"As the origin sent it; null if not sent" show:"expected"`
	ReferrerPolicy                  *string `json:"referrer-policy" doc:"As the origin sent it; null if not sent" show:"expected"`
	Server                          *string `json:"server" doc:"As the origin sent it; null if not sent"`
	StrictTransportSecurity         *string `json:"strict-transport-security" doc:"As the origin sent it; null if not sent" show:"expected"`
	WWWAuthenticate                 *string `json:"www-authenticate" doc:"As the origin sent it; null if not sent"`
	XContentTypeOptions             *string `json:"x-content-type-options" doc:"As the origin sent it; null if not sent" show:"expected"`
	XFrameOptions                   *string `json:"x-frame-options" doc:"As the origin sent it; null if not sent" show:"expected"`
	XPoweredBy                      *string `json:"x-powered-by" doc:"As the origin sent it; null if not sent"`
}

// Expected returns the names of the security headers that every site should send.
func Expected() (all []string) {
	for f := range reflect.TypeFor[Headers]().Fields() {
		if f.Tag.Get("show") == "expected" {
			all = append(all, f.Tag.Get("json"))
		}
	}
	return all
}

// Verdicts returns the rules for the line that summarises a Result.
func Verdicts() []lookup.Verdict {
	expected := len(Expected())
	return []lookup.Verdict{
		{If: "status >= 500 and status < 600", Says: "The server reports an error: HTTP {status}", Tone: lookup.Bad},
		{If: "status >= 400", Says: "HTTP {status}: the page was not served", Tone: lookup.Warn}, // there is no upper limit, because some sites answer robots with 999
		{If: "status >= 300 and headers.location != null", Says: "HTTP {status}: redirects to {headers.location host url}"},
		{If: "headers.missing = 0", Says: fmt.Sprintf("HTTP {status}. All %d security headers are set", expected), Tone: lookup.Good},
		{If: "headers.missing = 1", Says: fmt.Sprintf("HTTP {status}. 1 of %d security headers is missing", expected), Tone: lookup.Warn},
		{Says: fmt.Sprintf("HTTP {status}. {headers.missing} of %d security headers are missing", expected), Tone: lookup.Warn},
	}
}

// Client looks up headers. It is safe for concurrent use.
type Client struct{ origins *origin.Client }

// New returns a Client that connects and sends its requests with the given origin.Client.
func New(origins *origin.Client) *Client { return &Client{origins} }

// Lookup answers a query before ctx ends. Its errors are those that origin.Fault returns. The
// code of a time-out is headers_timeout.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	target, err := c.origins.Connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.HeadersTimeout)
	}
	return c.LookupOn(ctx, q, target, nil, netip.Addr{})
}

// LookupOn is like Lookup, for a target that has already been resolved. If conn is not nil, it
// must be connected to the address peer, and its TLS handshake must be complete. LookupOn then
// sends its request over conn, and closes conn. If conn turns out to be dead, LookupOn makes a
// new connection.
func (c *Client) LookupOn(ctx context.Context, q Query, target guard.Target, conn *tls.Conn, peer netip.Addr) (Result, error) {
	host := c.origins.Host(target, conn, peer)
	defer host.Close()
	a, err := host.Fetch(ctx, "/")
	if err == nil {
		err = a.Reports(headerNames()...)
	}
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.HeadersTimeout)
	}
	return Result{
		Domain:  q.Domain,
		URL:     "https://" + q.Domain + "/",
		Method:  a.Method,
		Status:  a.Status,
		PeerIP:  a.Peer.String(),
		Headers: allowedHeaders(a.Header),
	}, nil
}

// headerNames returns the names of the sixteen headers, in the order of the fields of Headers.
func headerNames() (all []string) {
	for f := range reflect.TypeFor[Headers]().Fields() {
		all = append(all, f.Tag.Get("json"))
	}
	return all
}

// allowedHeaders returns the headers of the spec and leaves out all others. Some headers are
// lists by their standards: RFC 9110 and 9111, CSP 3, Referrer Policy, Permissions Policy,
// Fetch and HTML. Fetch and HTML split X-Content-Type-Options and X-Frame-Options at commas.
// No standard defines X-Powered-By; it counts as a list, because each layer of a server may
// add a field. Strict-Transport-Security is not a list: only its first field counts (RFC 6797
// §8.1).
func allowedHeaders(h http.Header) (out Headers) {
	listHeaders := []string{
		"cache-control", "content-security-policy", "content-security-policy-report-only", "permissions-policy",
		"referrer-policy", "www-authenticate", "x-content-type-options", "x-frame-options", "x-powered-by",
	}
	fields := reflect.ValueOf(&out).Elem()
	for i, name := range headerNames() {
		var texts []string
		for _, v := range h.Values(name) { // convert each field separately, because one field may be ISO 8859-1 and the next UTF-8
			texts = append(texts, origin.Text(v))
		}
		if len(texts) > 1 && !slices.Contains(listHeaders, name) {
			texts = texts[:1]
		}
		if len(texts) > 0 {
			fields.Field(i).Set(reflect.ValueOf(new(strings.Join(texts, ", "))))
		}
	}
	return out
}
