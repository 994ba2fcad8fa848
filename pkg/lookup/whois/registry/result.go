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

// Limits of a result. What exceeds them is left out.
const (
	maxListed = 64  // elements of a list
	maxText   = 512 // bytes of a string
	maxNested = 8   // how deep a registrar may be nested in other entities
	maxCard   = 4   // how deep the properties of a jCard may be nested; 3 is right
)

// result takes the facts of spec §2.3 out of a domain object.
func result(q whois.Query, base string, d *rdap.Domain) whois.Result {
	r := whois.Result{
		Domain:      q.Domain,
		Source:      whois.Source,
		RDAPServer:  base,
		Status:      words(raw(d.DecodeData, "status")),
		Registrar:   registrar(objects(raw(d.DecodeData, "entities")), 0),
		Nameservers: nameservers(objects(raw(d.DecodeData, "nameservers"))),
	}
	events := objects(raw(d.DecodeData, "events"))
	r.CreatedAt = event(events, "registration")
	r.UpdatedAt = event(events, "last changed")
	r.ExpiresAt = event(events, "expiration", "record expires") // the latter is that of .kg
	if handle := text(raw(d.DecodeData, "handle")); handle != "" {
		r.Handle = &handle
	}
	if secure := objects(raw(d.DecodeData, "secureDNS")); len(secure) > 0 { // the decoder would take "true" and 1 for true
		r.DNSSEC = secure[0]["delegationSigned"] == true
	}
	return r
}

// registered reports whether an object shows a registration: with whom, since or until when,
// and no status of RFC 9083 §10.2.2 that says that it is the registry's own.
func registered(d *rdap.Domain) bool {
	for _, status := range list(raw(d.DecodeData, "status")) {
		if is(status, "reserved") || is(status, "administrative") {
			return false
		}
	}
	if registrar(objects(raw(d.DecodeData, "entities")), 0) != nil {
		return true
	}
	events := objects(raw(d.DecodeData, "events"))
	return event(events, "registration", "expiration") != nil
}

// about reports whether an object is about a name. Some registries write the
// Unicode form into ldhName, or fill only unicodeName, and some put blanks around it.
func about(d *rdap.Domain, name string) bool {
	published := strings.TrimSpace(cmp.Or(d.LDHName, d.UnicodeName))
	if strings.EqualFold(strings.TrimSuffix(published, "."), name) {
		return true
	}
	mapped, err := guard.Domain(published, guard.Hostname)
	return err == nil && mapped == name
}

// raw is a member as it was sent: the decoder turns numbers, booleans and null
// into what a field wants, and drops what it cannot turn.
func raw(d *rdap.DecodeData, member string) any {
	if d == nil {
		return nil
	}
	return d.Value(member)
}

// list is a member that should be an array; some registries send the only element alone.
func list(v any) []any {
	if all, ok := v.([]any); ok || v == nil {
		return all
	}
	return []any{v}
}

// object is one within a domain object, as it was sent. The decoder makes nothing of one that
// stands alone where a list belongs.
type object = map[string]any

// objects are those among the elements of a member.
func objects(v any) (all []object) {
	for _, e := range list(v) {
		if o, ok := e.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// text is a string of the result: trimmed, not longer than maxText, empty for
// anything else. Identifiers are sometimes sent as JSON numbers.
func text(v any) string {
	const exact = 1 << 53 // above it a float64 is no longer the number sent
	switch v := v.(type) {
	case string:
		if trimmed := strings.TrimSpace(v); len(trimmed) <= maxText {
			return trimmed
		}
	case float64:
		isIdentifier := v >= 0 && v < exact && v == math.Trunc(v)
		if isIdentifier {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

// words are the strings among the elements of a member, as published.
func words(v any) []string {
	out := []string{}
	for _, e := range list(v) {
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

// is reports whether a value is a word, in any letter case.
func is(v any, word string) bool {
	s, ok := v.(string)
	return ok && strings.EqualFold(strings.TrimSpace(s), word)
}

// registrar is the first entity in the role registrar that has a name, nested
// ones included, in document order. The registrar of .cx has no name, and is named on
// an entity within, for reports of abuse, whose handle is the registrar's.
func registrar(entities []object, depth int) *whois.Registrar {
	if depth == maxNested {
		return nil
	}
	for _, e := range entities {
		nested := objects(e["entities"])
		if slices.ContainsFunc(list(e["roles"]), func(role any) bool { return is(role, "registrar") }) {
			name := entityName(e)
			handle := text(e["handle"])
			for _, within := range nested {
				if handle != "" && text(within["handle"]) == handle {
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

// ianaID is the identifier with the type of RFC 9083 §4.8. No other is taken for IANA's: not
// those of registries, and not the handle, which is the same number at some registries only.
func ianaID(e object) string {
	for _, id := range objects(e["publicIds"]) {
		if s := text(id["identifier"]); s != "" && is(id["type"], "IANA Registrar ID") {
			return s
		}
	}
	return ""
}

// entityName is the formatted name of an entity's vCard, else its organisation. The
// decoder drops a whole jCard for one malformed property, and knows property names in
// lower case only, so the card is read as it was sent.
func entityName(e object) string {
	card := e["vcardArray"]
	return cmp.Or(property(card, "fn", maxCard), property(card, "org", maxCard))
}

// property finds a text property in a jCard (RFC 7095) that need not be
// well formed: the arrays may be nested one more time than they should be, and of
// a property only the name at its start and the value at its end count.
func property(card any, name string, depth int) string {
	fields, ok := card.([]any)
	if !ok || depth == 0 {
		return ""
	}
	if len(fields) >= 3 && is(fields[0], name) {
		if value := propertyValue(fields[len(fields)-1]); value != "" {
			return value
		}
	}
	for _, f := range fields {
		if found := property(f, name, depth-1); found != "" {
			return found
		}
	}
	return ""
}

// propertyValue is the text of a property's value. That of org may be a list, in which units
// follow the name.
func propertyValue(v any) string {
	values := list(v)
	if len(values) == 0 {
		return ""
	}
	s, _ := values[0].(string)
	return text(s)
}

// event is the time of the first event with one of the actions and a date that can be read.
func event(events []object, actions ...string) *string {
	for _, e := range events {
		published, _ := e["eventDate"].(string)
		t := date(published)
		if t != "" && slices.ContainsFunc(actions, func(action string) bool { return is(e["eventAction"], action) }) {
			return &t
		}
	}
	return nil
}

// date writes an eventDate as RFC 3339 in UTC; empty when it cannot be read. RFC 9083
// §4.5 wants RFC 3339; in the other forms that registries use, a time without a zone is
// UTC, and a date without a time is midnight. Seconds, which may have a fraction, and the
// minutes of an offset may be missing where they are zero.
func date(published string) string {
	if len(published) > 64 {
		return ""
	}
	// RFC 3339 §5.6 allows t and z in lower case; Go's layouts do not.
	published = strings.ToUpper(strings.TrimSpace(published))
	published = strings.Replace(published, " ", "T", 1) // some write a space
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
		if 1 <= t.Year() && t.Year() <= 9999 { // an offset can leave the years of RFC 3339
			return t.Format(time.RFC3339)
		}
	}
	return ""
}

// nameservers are the host names among those published, in lower-case A-labels
// without the trailing dot, each once.
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

// hostname is empty for what is not a host name. A registry may list hosts that this
// service would not be asked about, so only Unicode goes through the guard.
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
