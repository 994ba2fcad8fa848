package registry

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrdap/rdap"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

const (
	// maxNested is how deep a registrar may be nested in other entities.
	maxNested = 8

	// maxCard is how deep the properties of a jCard may be nested; 3 is right.
	maxCard = 4

	ianaIDType = "IANA Registrar ID" // RFC 9083 §4.8
)

// registrar is the first entity in the role registrar that has a name, nested
// ones included, in document order.
func registrar(entities []rdap.Entity, depth int) *Registrar {
	if depth == maxNested {
		return nil
	}
	for _, e := range entities {
		if hasRole(e, "registrar") {
			if name := registrarName(e); name != "" {
				return &Registrar{Name: name, IANAID: ianaID(e)}
			}
		}
		if r := registrar(e.Entities, depth+1); r != nil {
			return r
		}
	}
	return nil
}

// registrarName is the name of a registrar's entity. That of .cx has none, and
// names the registrar on an entity within, for reports of abuse, whose handle is
// the registrar's own.
func registrarName(e rdap.Entity) string {
	if name := entityName(e); name != "" {
		return name
	}
	handle := text(raw(e.DecodeData, "handle"))
	for _, within := range e.Entities {
		if name := entityName(within); name != "" && handle != "" && text(raw(within.DecodeData, "handle")) == handle {
			return name
		}
	}
	return ""
}

func hasRole(e rdap.Entity, role string) bool {
	for _, r := range list(raw(e.DecodeData, "roles")) {
		if s, ok := r.(string); ok && strings.EqualFold(strings.TrimSpace(s), role) {
			return true
		}
	}
	return false
}

// ianaID takes no other identifier for IANA's: not those of registries, and
// not the handle, which is the same number with some registries only.
func ianaID(e rdap.Entity) string {
	for _, v := range list(raw(e.DecodeData, "publicIds")) {
		id, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if typ, ok := id["type"].(string); ok && strings.EqualFold(strings.TrimSpace(typ), ianaIDType) {
			if s := text(id["identifier"]); s != "" {
				return s
			}
		}
	}
	return ""
}

// entityName is the formatted name of an entity's vCard, else its
// organisation.
func entityName(e rdap.Entity) string {
	if e.VCard != nil {
		if name := text(e.VCard.Name()); name != "" {
			return name
		}
	}
	// The decoder drops a whole jCard for one malformed property, and knows
	// property names in lower case only.
	card := raw(e.DecodeData, "vcardArray")
	if name := property(card, "fn", maxCard); name != "" {
		return name
	}
	return property(card, "org", maxCard)
}

// property reads a text property out of a jCard (RFC 7095) that need not be
// well formed: the arrays may be nested one more time than they should be, and of
// a property only the name at its start and the value at its end count.
func property(card any, name string, depth int) string {
	fields, ok := card.([]any)
	if !ok || depth == 0 {
		return ""
	}
	if len(fields) >= 3 && strings.EqualFold(text(fields[0]), name) {
		value := list(fields[len(fields)-1])
		if len(value) > 0 { // org: the units follow
			if s, ok := value[0].(string); ok && text(s) != "" {
				return text(s)
			}
		}
	}
	for _, f := range fields {
		if found := property(f, name, depth-1); found != "" {
			return found
		}
	}
	return ""
}

// stamp is how a result writes a time.
const stamp = "2006-01-02T15:04:05Z"

// layouts are the forms of eventDate that registries use. RFC 9083 §4.5 wants
// the first; a time without a zone is UTC, a date without a time is midnight.
// Each takes a fraction of a second.
func layouts() []string {
	return []string{
		time.RFC3339,
		"2006-01-02T15:04:05Z0700",
		"2006-01-02T15:04:05",
		"2006-01-02 15:04:05Z07:00",
		"2006-01-02 15:04:05",
		time.DateOnly,
	}
}

// event is the time of the first event with one of the actions, in lower case, and
// a date that can be read.
func event(events []rdap.Event, actions ...string) *string {
	for _, e := range events {
		if !slices.Contains(actions, strings.ToLower(strings.TrimSpace(e.Action))) {
			continue
		}
		if t, ok := date(e.Date); ok {
			return &t
		}
	}
	return nil
}

func date(published string) (string, bool) {
	if len(published) > 64 {
		return "", false
	}
	// RFC 3339 §5.6 allows t and z in lower case; Go's layouts do not.
	published = strings.ToUpper(strings.TrimSpace(published))
	for _, l := range layouts() {
		t, err := time.Parse(l, published)
		if err != nil {
			continue
		}
		t = t.UTC()
		if t.Year() < 1 || t.Year() > 9999 { // an offset can leave the years of RFC 3339
			return "", false
		}
		return t.Format(stamp), true
	}
	return "", false
}

// The question and the answer, under their own names.
type (
	// Config is whois.Config.
	Config = whois.Config
	// Cache is whois.Cache.
	Cache = whois.Cache
	// Query is whois.Query.
	Query = whois.Query
	// Result is whois.Result.
	Result = whois.Result
	// Registrar is whois.Registrar.
	Registrar = whois.Registrar
)

// Limits of a result. An honest answer is far below them; what exceeds them is
// left out.
const (
	maxListed = 64  // elements of a list
	maxText   = 512 // bytes of a string
)

// result takes the facts of spec §2.3 out of a domain object.
func result(q Query, base string, d *rdap.Domain) Result {
	return Result{
		Domain:      q.Domain,
		Source:      whois.Source,
		RDAPServer:  base,
		Handle:      optional(text(raw(d.DecodeData, "handle"))),
		Status:      words(raw(d.DecodeData, "status")),
		Registrar:   registrar(d.Entities, 0),
		CreatedAt:   event(d.Events, "registration"),
		UpdatedAt:   event(d.Events, "last changed"),
		ExpiresAt:   event(d.Events, "expiration", "record expires"), // the latter is that of .kg
		Nameservers: nameservers(d.Nameservers),
		DNSSEC:      signed(d.SecureDNS),
	}
}

// about reports whether an object is about a name. Some registries write the
// Unicode form into ldhName, or fill only unicodeName.
func about(d *rdap.Domain, name string) bool {
	published := d.LDHName
	if published == "" {
		published = d.UnicodeName
	}
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

// list is a member that should be an array; some registries send the only
// element alone.
func list(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// text is a string of the result: trimmed, not longer than maxText, empty for
// anything else. Identifiers are sometimes sent as JSON numbers.
func text(v any) string {
	const exact = 1 << 53 // above it a float64 is no longer the number sent
	switch v := v.(type) {
	case string:
		if s := strings.TrimSpace(v); len(s) <= maxText {
			return s
		}
	case float64:
		if v >= 0 && v < exact && v == float64(int64(v)) {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// words are the strings among the elements of a member, as published.
func words(v any) []string {
	out := []string{}
	for _, e := range list(v) {
		if s, ok := e.(string); ok && strings.TrimSpace(s) != "" && len(s) <= maxText && len(out) < maxListed {
			out = append(out, s)
		}
	}
	return out
}

func nameservers(published []rdap.Nameserver) []string {
	out := []string{}
	for _, n := range published {
		name := hostname(n.LDHName)
		if name == "" {
			name = hostname(n.UnicodeName)
		}
		if name != "" && len(out) < maxListed && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// hostname is a published name in lower-case A-labels without the trailing
// dot, empty for what is no host name. A registry may list hosts that this
// service would not be asked about, so only Unicode goes through the guard.
func hostname(published string) string {
	name := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(published), "."))
	if mapped, err := guard.Domain(published, guard.DNSName); err == nil {
		name = mapped
	}
	if len(name) > 253 {
		return ""
	}
	for l := range strings.SplitSeq(name, ".") {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	return name
}

// signed is strict: the decoder would take "true" and 1 for true.
func signed(s *rdap.SecureDNS) bool {
	if s == nil {
		return false
	}
	b, ok := raw(s.DecodeData, "delegationSigned").(bool)
	return ok && b
}
