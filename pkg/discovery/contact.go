package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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
func (s Site) security() []byte {
	ends := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, securityDays)
	body := "Contact: " + s.Contact + "\nExpires: " + ends.Format(time.RFC3339) + "\n"
	if strings.HasPrefix(s.Origin, "https://") { // section 2.5.2 takes no other
		body += "Canonical: " + s.Origin + pathSecurity + "\n"
	}
	return []byte(body)
}

// claims are the files by which indexes find out whose the service is.
func (s Site) claims() []Document {
	var all []Document
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		kind := typeText
		if strings.HasSuffix(name, ".json") {
			kind = typeJSON
		}
		all = append(all, document(wellKnown+name, kind, func() []byte { return []byte(s.Claims[name]) }))
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
