package headers

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// Query is the question of spec §4.5.
type Query = guard.Query

// Result is the headers result of spec §2.4.
type Result struct {
	Domain  string  `json:"domain" doc:"Normalized FQDN fetched"`
	URL     string  `json:"url" doc:"Always https://{domain}/"`
	Method  string  `json:"method" doc:"Method that produced the answer" enum:"HEAD,GET" schema:"ProbeMethod"`
	Status  int     `json:"status" doc:"HTTP status from the origin"`
	PeerIP  string  `json:"peer_ip" doc:"Connected peer IP address"`
	Headers Headers `json:"headers" doc:"Allowlisted response headers" schema:"ResponseHeaders"`
}

// Headers are the allowlisted response headers of spec §2.4: nil for one that
// the origin did not send, "" for one that it sent empty. Fields of a header
// that is a list are joined with ", "; of any other the first counts. Values
// are what origin.Text makes of them.
type Headers struct {
	AccessControlAllowOrigin        *string `json:"access-control-allow-origin" doc:"As the origin sent it; null when it did not"`
	CacheControl                    *string `json:"cache-control" doc:"As the origin sent it; null when it did not"`
	ContentSecurityPolicy           *string `json:"content-security-policy" doc:"As the origin sent it; null when it did not" show:"expected"`
	ContentSecurityPolicyReportOnly *string `json:"content-security-policy-report-only" doc:"As the origin sent it; null when it did not"`
	ContentType                     *string `json:"content-type" doc:"As the origin sent it; null when it did not"`
	CrossOriginOpenerPolicy         *string `json:"cross-origin-opener-policy" doc:"As the origin sent it; null when it did not"`
	CrossOriginResourcePolicy       *string `json:"cross-origin-resource-policy" doc:"As the origin sent it; null when it did not"`
	Location                        *string `json:"location" doc:"As the origin sent it; null when it did not"`
	PermissionsPolicy               *string `json:"permissions-policy" doc:"As the origin sent it; null when it did not" show:"expected"`
	ReferrerPolicy                  *string `json:"referrer-policy" doc:"As the origin sent it; null when it did not" show:"expected"`
	Server                          *string `json:"server" doc:"As the origin sent it; null when it did not"`
	StrictTransportSecurity         *string `json:"strict-transport-security" doc:"As the origin sent it; null when it did not" show:"expected"`
	WWWAuthenticate                 *string `json:"www-authenticate" doc:"As the origin sent it; null when it did not"`
	XContentTypeOptions             *string `json:"x-content-type-options" doc:"As the origin sent it; null when it did not" show:"expected"`
	XFrameOptions                   *string `json:"x-frame-options" doc:"As the origin sent it; null when it did not" show:"expected"`
	XPoweredBy                      *string `json:"x-powered-by" doc:"As the origin sent it; null when it did not"`
}

// allowlisted picks the headers of the spec. Which of them are lists follows
// their own standards: RFC 9110 and 9111, CSP 3, Referrer Policy, Permissions
// Policy, and Fetch and HTML, which split both X- options at commas. Of
// Strict-Transport-Security only the first counts (RFC 6797 §8.1). The order of
// X-Powered-By is that of the layers that added to it.
func allowlisted(h http.Header) (out Headers) {
	lists := []string{
		"cache-control", "content-security-policy", "content-security-policy-report-only", "permissions-policy",
		"referrer-policy", "www-authenticate", "x-content-type-options", "x-frame-options", "x-powered-by",
	}
	fields := reflect.ValueOf(&out).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("json")
		values := h.Values(name)
		if len(values) == 0 {
			continue
		}
		if !slices.Contains(lists, name) {
			values = values[:1]
		}
		// One by one: a field in ISO 8859-1 must not spoil its neighbour in UTF-8.
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = origin.Text(v)
		}
		fields.Field(i).Set(reflect.ValueOf(new(strings.Join(texts, ", "))))
	}
	return out
}
