package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	wellKnown    = "/.well-known/"
	pathSecurity = wellKnown + "security.txt"
)

// securityDays is how long security.txt says that it is valid, from the day on which
// it is asked for; RFC 9116, section 2.5.5, wants less than a year.
const securityDays = 180

// security is security.txt (RFC 9116). It is made for each request, because a copy
// that is kept would expire, and is the same for a day.
func (s Site) security() Document {
	ends := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, securityDays)
	body := "Contact: " + s.Contact + "\nExpires: " + ends.Format(time.RFC3339) + "\n"
	if strings.HasPrefix(s.Origin, "https://") { // section 2.5.2 takes no other
		body += "Canonical: " + s.Origin + pathSecurity + "\n"
	}
	return Document{Path: pathSecurity, ContentType: typeText, Body: []byte(body), ETag: etagOf([]byte(body))}
}

// claims are the files by which indexes find out whose the service is.
func (s Site) claims() []source {
	var all []source
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		kind := typeText
		if strings.HasSuffix(name, ".json") {
			kind = typeJSON
		}
		all = append(all, source{wellKnown + name, kind, func() ([]byte, error) { return []byte(s.Claims[name]), nil }})
	}
	return all
}

// apiContactOf is whom OpenAPI names: the operator, or else the source.
func apiContactOf(s Site) object {
	c := object{{"name", catalog.Service}}
	if address, ok := strings.CutPrefix(s.Contact, "mailto:"); ok {
		return append(c, member{"email", address})
	}
	return append(c, member{"url", cmp.Or(s.Contact, catalog.Homepage)})
}

// howToAsk says how to ask the operator about a payment.
func howToAsk(s Site) string {
	if s.Contact == "" {
		return "The operator of this deployment gave no address at which to ask about one."
	}
	return "To ask about one, write to " + strings.TrimPrefix(s.Contact, "mailto:") + " with the `transaction` of its `" + x402.HeaderResponse + "`."
}
