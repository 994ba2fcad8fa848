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
		made     = `"events":[{"eventAction":"registration","eventDate":"1996-08-01T00:00:00Z"}]`
		elsewise = "Another registry may keep the names below gov.uk."
	)
	type row struct {
		domain       string
		host, suffix site // the registry's response about www.gov.uk and other names, and its response about gov.uk
		code         fault.Code
		want         string // the handle of the result, or a part of the error's public message
		asked        string
	}
	gone, here := status(404, ""), says(domainOf("gov.uk", `"handle":"suffix"`, made))
	each(t, map[string]row{
		"registered itself":          {domain: "www.gov.uk", host: says(domainOf("www.gov.uk", `"handle":"host"`)), suffix: here, want: "host", asked: "www.gov.uk"},
		"its suffix is":              {domain: "www.gov.uk", host: gone, suffix: here, want: "suffix", asked: "www.gov.uk gov.uk"},
		"with a registrar alone":     {domain: "www.gov.uk", host: gone, suffix: says(domainOf("gov.uk", `"handle":"suffix"`, `"entities":[{"roles":["registrar"],"vcardArray":["vcard",[["fn",{},"text","Reg"]]]}]`)), want: "suffix", asked: "www.gov.uk gov.uk"},
		"a host of it":               {domain: "a.www.gov.uk", host: gone, suffix: here, want: "suffix", asked: "www.gov.uk gov.uk"},
		"neither is":                 {domain: "www.gov.uk", host: gone, suffix: gone, code: lookup.NotFound, want: elsewise, asked: "www.gov.uk gov.uk"},
		"an error object":            {domain: "www.gov.uk", host: says(`{"errorCode":404}`), suffix: here, want: "suffix", asked: "www.gov.uk gov.uk"},
		"the suffix is reserved":     {domain: "www.gov.uk", host: gone, suffix: says(domainOf("gov.uk", `"status":["reserved"]`, made)), code: lookup.NotFound, want: elsewise, asked: "www.gov.uk gov.uk"},
		"the suffix is the registry": {domain: "www.gov.uk", host: gone, suffix: says(domainOf("gov.uk", `"status":"Administrative"`, made)), code: lookup.NotFound, want: elsewise, asked: "www.gov.uk gov.uk"},
		"the suffix shows nothing":   {domain: "www.gov.uk", host: gone, suffix: says(domainOf("gov.uk")), code: lookup.NotFound, want: elsewise, asked: "www.gov.uk gov.uk"},
		"the suffix is of another":   {domain: "www.gov.uk", host: gone, suffix: says(domainOf("co.uk")), code: lookup.RDAPUpstream, want: "about another name", asked: "www.gov.uk gov.uk"},
		"the suffix fails":           {domain: "www.gov.uk", host: gone, suffix: status(500, ""), code: lookup.RDAPUpstream, want: "HTTP status 500", asked: "www.gov.uk gov.uk"},
		"the registry fails":         {domain: "www.gov.uk", host: status(500, ""), suffix: here, code: lookup.RDAPUpstream, want: "HTTP status 500", asked: "www.gov.uk"},
		"another name":               {domain: "free.gov.uk", host: gone, suffix: here, code: lookup.NotFound, want: elsewise, asked: "free.gov.uk"},
		"a host of another name":     {domain: "a.free.gov.uk", host: gone, suffix: here, code: lookup.NotFound, want: elsewise, asked: "free.gov.uk"},
		"its own web host":           {domain: "www.free.gov.uk", host: gone, suffix: here, code: lookup.NotFound, want: elsewise, asked: "free.gov.uk"},
		"answered with the suffix":   {domain: "free.gov.uk", host: here, suffix: here, code: lookup.RDAPUpstream, want: "about another name", asked: "free.gov.uk"},
		"a suffix of one label":      {domain: "www.uk", host: gone, suffix: here, code: lookup.NotFound, want: "no registration of the domain.", asked: "www.uk"},
	}, func(t *testing.T, s *stage, c row) {
		var asked []string
		s.bootstraps(says(wrap(`[["uk"],["https://rdap.registry.com/"]]`)))
		s.https("rdap.registry.com", func(w io.Writer, r *http.Request) {
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
