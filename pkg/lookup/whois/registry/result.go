package registry

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrdap/rdap"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// The limits of a result. A result leaves out the values that exceed them.
const (
	maxListed = 64  // the largest number of elements of a list
	maxText   = 512 // the largest number of bytes of a string
	maxNested = 8   // the largest depth at which a registrar may be nested in other entities
	maxCard   = 4   // the largest depth at which the properties of a jCard may be nested; the standard depth is 3
)

// result extracts the facts of spec §2.3 from a domain object.
func result(q whois.Query, base string, d *rdap.Domain) whois.Result {
	r := whois.Result{
		Domain:      q.Domain,
		Source:      whois.Source,
		RDAPServer:  base,
		Status:      stringsOf(rawMember(d.DecodeData, "status")),
		Registrar:   registrar(objectsOf(rawMember(d.DecodeData, "entities")), 0),
		Nameservers: nameservers(objectsOf(rawMember(d.DecodeData, "nameservers"))),
	}
	events := objectsOf(rawMember(d.DecodeData, "events"))
	r.CreatedAt = eventTime(events, "registration")
	r.UpdatedAt = eventTime(events, "last changed")
	r.ExpiresAt = eventTime(events, "expiration", "record expires") // the registry of .kg uses "record expires"
	if handle := textOf(rawMember(d.DecodeData, "handle")); handle != "" {
		r.Handle = &handle
	}
	if secure := objectsOf(rawMember(d.DecodeData, "secureDNS")); len(secure) > 0 { // use the value as it was sent, because the decoder would turn "true" and 1 into true
		r.DNSSEC = secure[0]["delegationSigned"] == true
	}
	return r
}

// isRegistered reports whether an object shows a registration. Such an object has a registrar,
// a date of registration or a date of expiry. It has no status that reserves the name for the
// registry (RFC 9083 §10.2.2).
func isRegistered(d *rdap.Domain) bool {
	for _, status := range elementsOf(rawMember(d.DecodeData, "status")) {
		if equalsWord(status, "reserved") || equalsWord(status, "administrative") {
			return false
		}
	}
	if registrar(objectsOf(rawMember(d.DecodeData, "entities")), 0) != nil {
		return true
	}
	events := objectsOf(rawMember(d.DecodeData, "events"))
	return eventTime(events, "registration", "expiration") != nil
}

// isAbout reports whether an object is about the domain with the given name. Some registries
// write the Unicode form of a name into ldhName, fill in only unicodeName, or put blanks
// around the name.
func isAbout(d *rdap.Domain, name string) bool {
	published := strings.TrimSpace(cmp.Or(d.LDHName, d.UnicodeName))
	if strings.EqualFold(strings.TrimSuffix(published, "."), name) {
		return true
	}
	mapped, err := guard.Domain(published, guard.Hostname)
	return err == nil && mapped == name
}

// rawMember returns the value of a member of an object as it was sent. The decoder's fields
// cannot be used. To fill a field, the decoder converts numbers, booleans and null to the type
// of the field, and drops values that it cannot convert.
func rawMember(d *rdap.DecodeData, member string) any {
	if d == nil {
		return nil
	}
	return d.Value(member)
}

// elementsOf returns the elements of a value that should be an array. Some registries send a
// single element instead of an array of one. So if the value is neither an array nor nil,
// elementsOf returns the value itself as the only element.
func elementsOf(v any) []any {
	if all, ok := v.([]any); ok || v == nil {
		return all
	}
	return []any{v}
}

// object is a JSON object within a domain object, as it was sent. It is used instead of the
// decoder's types, because the decoder ignores a single object where the standard has an
// array.
type object = map[string]any

// objectsOf returns those elements of a value that are objects.
func objectsOf(v any) (all []object) {
	for _, e := range elementsOf(v) {
		if o, ok := e.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// textOf returns a string without surrounding blanks. Some registries send identifiers as JSON
// numbers, so textOf also accepts a whole number. For any other value, and for a string of
// more than maxText bytes, it returns "".
func textOf(v any) string {
	const exactLimit = 1 << 53 // from this number on, a float64 may differ from the number that was sent
	switch v := v.(type) {
	case string:
		if trimmed := strings.TrimSpace(v); len(trimmed) <= maxText {
			return trimmed
		}
	case float64:
		isIdentifier := v >= 0 && v < exactLimit && v == math.Trunc(v)
		if isIdentifier {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

// stringsOf returns those elements of a value that are strings, as they were published. It
// leaves out blank and long strings, and returns at most maxListed.
func stringsOf(v any) []string {
	out := []string{}
	for _, e := range elementsOf(v) {
		s, _ := e.(string)
		if strings.TrimSpace(s) == "" || len(s) > maxText {
			continue
		}
		if len(out) == maxListed {
			break
		}
		out = append(out, s)
	}
	return out
}

// equalsWord reports whether a value is a string that equals word, apart from letter case and
// surrounding blanks.
func equalsWord(v any, word string) bool {
	s, ok := v.(string)
	return ok && strings.EqualFold(strings.TrimSpace(s), word)
}

// registrar returns the first entity, in document order, that has the role "registrar" and a
// name. It also searches nested entities. The registry of .cx sends a registrar entity that
// has no name. This entity contains another, for abuse reports, with the same handle and with
// a name. In such a case registrar uses the name of the nested entity.
func registrar(entities []object, depth int) *whois.Registrar {
	if depth == maxNested {
		return nil
	}
	for _, e := range entities {
		nested := objectsOf(e["entities"])
		if slices.ContainsFunc(elementsOf(e["roles"]), func(role any) bool { return equalsWord(role, "registrar") }) {
			name := entityName(e)
			handle := textOf(e["handle"])
			for _, within := range nested {
				if handle != "" && textOf(within["handle"]) == handle {
					name = cmp.Or(name, entityName(within))
				}
			}
			if name != "" {
				return &whois.Registrar{Name: name, IANAID: ianaID(e)}
			}
		}
		if r := registrar(nested, depth+1); r != nil {
			return r
		}
	}
	return nil
}

// ianaID returns an entity's identifier of the type "IANA Registrar ID" (RFC 9083 §4.8), or
// "". It ignores identifiers of other types, which registries invent. It also ignores the
// entity's handle, because only some registries use the IANA number as the handle.
func ianaID(e object) string {
	for _, id := range objectsOf(e["publicIds"]) {
		if s := textOf(id["identifier"]); s != "" && equalsWord(id["type"], "IANA Registrar ID") {
			return s
		}
	}
	return ""
}

// entityName returns the formatted name (fn) in an entity's jCard, or else the organisation
// (org) in the card. It reads the card as it was sent. The decoder drops a whole card for one
// malformed property, and knows property names only in lower case.
func entityName(e object) string {
	card := e["vcardArray"]
	return cmp.Or(propertyText(card, "fn", maxCard), propertyText(card, "org", maxCard))
}

// propertyText returns the text of the property called name in a jCard (RFC 7095). The first
// element of a property is its name, and the last is its value; propertyText ignores the
// elements between them. It finds properties down to the given depth of nesting. The depth
// maxCard is one level more than the standard has.
func propertyText(card any, name string, depth int) string {
	fields, ok := card.([]any)
	if !ok || depth == 0 {
		return ""
	}
	if len(fields) >= 3 && equalsWord(fields[0], name) {
		if value := propertyValue(fields[len(fields)-1]); value != "" {
			return value
		}
	}
	for _, f := range fields {
		if found := propertyText(f, name, depth-1); found != "" {
			return found
		}
	}
	return ""
}

// propertyValue returns the text of a property's value. The value of org may be a list: first
// the name of the organisation and then its units. propertyValue returns the first element of
// a list.
func propertyValue(v any) string {
	values := elementsOf(v)
	if len(values) == 0 {
		return ""
	}
	s, _ := values[0].(string)
	return textOf(s)
}

// eventTime returns the time of the first event that has one of the given actions and a date
// that the function utcTime can read. It returns nil if there is none.
func eventTime(events []object, actions ...string) *string {
	for _, e := range events {
		published, _ := e["eventDate"].(string)
		t := utcTime(published)
		if t != "" && slices.ContainsFunc(actions, func(action string) bool { return equalsWord(e["eventAction"], action) }) {
			return &t
		}
	}
	return nil
}

// utcTime returns a published eventDate in the form of RFC 3339, in UTC, or "" if it cannot
// read it. RFC 9083 §4.5 requires the form of RFC 3339, but registries also use other forms. A
// time without a zone counts as UTC, and a day without a time counts as midnight. Seconds may
// have a fraction. If the seconds, or the minutes of an offset, are missing, they are zero.
func utcTime(published string) string {
	if len(published) > 64 {
		return ""
	}
	// RFC 3339 §5.6 allows the letters T and Z in lower case, but the layouts of Go do not.
	published = strings.ToUpper(strings.TrimSpace(published))
	published = strings.Replace(published, " ", "T", 1) // some registries write a space instead of the T
	for _, layout := range []string{
		time.RFC3339,
		"2006-01-02T15:04:05Z0700",
		"2006-01-02T15:04:05Z07",
		"2006-01-02T15:04Z07:00",
		"2006-01-02T15:04:05",
		time.DateOnly,
	} {
		t, err := time.Parse(layout, published)
		if err != nil {
			continue
		}
		t = t.UTC()
		if 1 <= t.Year() && t.Year() <= 9999 { // in UTC, the year may be outside the range of RFC 3339
			return t.Format(time.RFC3339)
		}
	}
	return ""
}

// nameservers returns the host names of the published name servers, in the normal form of the
// function hostname. It returns each name once, and at most maxListed names.
func nameservers(published []object) []string {
	out := []string{}
	for _, n := range published {
		name := cmp.Or(hostname(n["ldhName"]), hostname(n["unicodeName"]))
		if name != "" && len(out) < maxListed && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// hostname returns a published host name in normal form, or "" if the value is not a host
// name. The normal form is lower case, without a trailing dot. If the guard accepts the name,
// the normal form has A-labels. A registry may also list hosts that the guard refuses, and
// their labels stay as they are.
func hostname(v any) string {
	sent, _ := v.(string)
	published := strings.TrimSpace(sent)
	name := strings.ToLower(strings.TrimSuffix(published, "."))
	if mapped, err := guard.Domain(published, guard.DNSName); err == nil {
		name = mapped
	}
	if len(name) > 253 {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return ""
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	return name
}
