package registry

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSuffix: a suffix is asked about only for its own web host, and only where the registry has
// nothing of that and shows a registration of the suffix. What is below a suffix can be kept by
// another registry, which the message says.
func TestSuffix(t *testing.T) {
	const (
		made     = `"events":[{"eventAction":"registration","eventDate":"1996-08-01T00:00:00Z"}]`
		elsewise = "Another registry may keep the names below gov.uk."
	)
	type row struct {
		domain       string
		host, suffix site // what is said of www.gov.uk and others, and of gov.uk
		code         fault.Code
		want         string // the handle, or a part of the public message
		asked        string
	}
	gone, here := status(404, ""), says(domainOf("gov.uk", `"handle":"suffix"`, made))
	each(t, map[string]row{
		"registered itself":          {"www.gov.uk", says(domainOf("www.gov.uk", `"handle":"host"`)), here, "", "host", "www.gov.uk"},
		"its suffix is":              {"www.gov.uk", gone, here, "", "suffix", "www.gov.uk gov.uk"},
		"with a registrar alone":     {"www.gov.uk", gone, says(domainOf("gov.uk", `"handle":"suffix"`, `"entities":[{"roles":["registrar"],"vcardArray":["vcard",[["fn",{},"text","Reg"]]]}]`)), "", "suffix", "www.gov.uk gov.uk"},
		"a host of it":               {"a.www.gov.uk", gone, here, "", "suffix", "www.gov.uk gov.uk"},
		"neither is":                 {"www.gov.uk", gone, gone, lookup.NotFound, elsewise, "www.gov.uk gov.uk"},
		"an error object":            {"www.gov.uk", says(`{"errorCode":404}`), here, "", "suffix", "www.gov.uk gov.uk"},
		"the suffix is reserved":     {"www.gov.uk", gone, says(domainOf("gov.uk", `"status":["reserved"]`, made)), lookup.NotFound, elsewise, "www.gov.uk gov.uk"},
		"the suffix is the registry": {"www.gov.uk", gone, says(domainOf("gov.uk", `"status":"Administrative"`, made)), lookup.NotFound, elsewise, "www.gov.uk gov.uk"},
		"the suffix shows nothing":   {"www.gov.uk", gone, says(domainOf("gov.uk")), lookup.NotFound, elsewise, "www.gov.uk gov.uk"},
		"the suffix is of another":   {"www.gov.uk", gone, says(domainOf("co.uk")), lookup.RDAPUpstream, "about another name", "www.gov.uk gov.uk"},
		"the suffix fails":           {"www.gov.uk", gone, status(500, ""), lookup.RDAPUpstream, "HTTP status 500", "www.gov.uk gov.uk"},
		"the registry fails":         {"www.gov.uk", status(500, ""), here, lookup.RDAPUpstream, "HTTP status 500", "www.gov.uk"},
		"another name":               {"free.gov.uk", gone, here, lookup.NotFound, elsewise, "free.gov.uk"},
		"a host of another name":     {"a.free.gov.uk", gone, here, lookup.NotFound, elsewise, "free.gov.uk"},
		"its own web host":           {"www.free.gov.uk", gone, here, lookup.NotFound, elsewise, "free.gov.uk"},
		"answered with the suffix":   {"free.gov.uk", here, here, lookup.RDAPUpstream, "about another name", "free.gov.uk"},
		"a suffix of one label":      {"www.uk", gone, here, lookup.NotFound, "no registration of the domain.", "www.uk"},
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
