package registry

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSuffix checks names below gov.uk, a suffix with two labels. If the registry has no
// registration of www.gov.uk, the web host of the suffix, the lookup must also query the
// registry about gov.uk. If the registry shows a registration of gov.uk, that must be the
// result. Otherwise the error's message must say that another registry may keep the names below
// gov.uk. For any other name, the lookup must not query the registry about gov.uk.
func TestSuffix(t *testing.T) {
	const (
		registrationEvent = `"events":[{"eventAction":"registration","eventDate":"1996-08-01T00:00:00Z"}]`
		otherRegistry     = "Another registry may keep the names below gov.uk."
	)
	type row struct {
		domain       string
		host, suffix responder // the registry's response about www.gov.uk and other names, and its response about gov.uk
		code         fault.Code
		want         string // the handle of the result, or a part of the error's public message
		asked        string
	}
	notFound, suffixFound := respondStatus(404, ""), respondOK(domainJSONOf("gov.uk", `"handle":"suffix"`, registrationEvent))
	eachStage(t, map[string]row{
		"registered itself":          {domain: "www.gov.uk", host: respondOK(domainJSONOf("www.gov.uk", `"handle":"host"`)), suffix: suffixFound, want: "host", asked: "www.gov.uk"},
		"its suffix is":              {domain: "www.gov.uk", host: notFound, suffix: suffixFound, want: "suffix", asked: "www.gov.uk gov.uk"},
		"with a registrar alone":     {domain: "www.gov.uk", host: notFound, suffix: respondOK(domainJSONOf("gov.uk", `"handle":"suffix"`, `"entities":[{"roles":["registrar"],"vcardArray":["vcard",[["fn",{},"text","Reg"]]]}]`)), want: "suffix", asked: "www.gov.uk gov.uk"},
		"a host of it":               {domain: "a.www.gov.uk", host: notFound, suffix: suffixFound, want: "suffix", asked: "www.gov.uk gov.uk"},
		"neither is":                 {domain: "www.gov.uk", host: notFound, suffix: notFound, code: lookup.NotFound, want: otherRegistry, asked: "www.gov.uk gov.uk"},
		"an error object":            {domain: "www.gov.uk", host: respondOK(`{"errorCode":404}`), suffix: suffixFound, want: "suffix", asked: "www.gov.uk gov.uk"},
		"the suffix is reserved":     {domain: "www.gov.uk", host: notFound, suffix: respondOK(domainJSONOf("gov.uk", `"status":["reserved"]`, registrationEvent)), code: lookup.NotFound, want: otherRegistry, asked: "www.gov.uk gov.uk"},
		"the suffix is the registry": {domain: "www.gov.uk", host: notFound, suffix: respondOK(domainJSONOf("gov.uk", `"status":"Administrative"`, registrationEvent)), code: lookup.NotFound, want: otherRegistry, asked: "www.gov.uk gov.uk"},
		"the suffix shows nothing":   {domain: "www.gov.uk", host: notFound, suffix: respondOK(domainJSONOf("gov.uk")), code: lookup.NotFound, want: otherRegistry, asked: "www.gov.uk gov.uk"},
		"the suffix is of another":   {domain: "www.gov.uk", host: notFound, suffix: respondOK(domainJSONOf("co.uk")), code: lookup.RDAPUpstream, want: "about another name", asked: "www.gov.uk gov.uk"},
		"the suffix fails":           {domain: "www.gov.uk", host: notFound, suffix: respondStatus(500, ""), code: lookup.RDAPUpstream, want: "HTTP status 500", asked: "www.gov.uk gov.uk"},
		"the registry fails":         {domain: "www.gov.uk", host: respondStatus(500, ""), suffix: suffixFound, code: lookup.RDAPUpstream, want: "HTTP status 500", asked: "www.gov.uk"},
		"another name":               {domain: "free.gov.uk", host: notFound, suffix: suffixFound, code: lookup.NotFound, want: otherRegistry, asked: "free.gov.uk"},
		"a host of another name":     {domain: "a.free.gov.uk", host: notFound, suffix: suffixFound, code: lookup.NotFound, want: otherRegistry, asked: "free.gov.uk"},
		"its own web host":           {domain: "www.free.gov.uk", host: notFound, suffix: suffixFound, code: lookup.NotFound, want: otherRegistry, asked: "free.gov.uk"},
		"answered with the suffix":   {domain: "free.gov.uk", host: suffixFound, suffix: suffixFound, code: lookup.RDAPUpstream, want: "about another name", asked: "free.gov.uk"},
		"a suffix of one label":      {domain: "www.uk", host: notFound, suffix: suffixFound, code: lookup.NotFound, want: "no registration of the domain.", asked: "www.uk"},
	}, func(t *testing.T, s *stage, c row) {
		var asked []string
		s.serveBootstrap(respondOK(wrap(`[["uk"],["https://rdap.registry.com/"]]`)))
		s.addRegistry("rdap.registry.com", func(w io.Writer, r *http.Request) {
			name := strings.TrimPrefix(r.URL.Path, "/domain/")
			asked = append(asked, name)
			if name == "gov.uk" {
				c.suffix(w, r)
				return
			}
			c.host(w, r)
		})
		got, err := s.lookup(t.Context(), c.domain, c.code)
		if all := strings.Join(asked, " "); all != c.asked {
			t.Errorf("asked about %s, want %s", all, c.asked)
		}
		if err != nil && !strings.Contains(fault.From(err).Public(), c.want) {
			t.Errorf("%q, want %q in it", fault.From(err).Public(), c.want)
		}
		if err == nil && (*got.Handle != c.want || got.Domain != c.domain) {
			t.Errorf("got %+v, handle %s", got, *got.Handle)
		}
	})
}
