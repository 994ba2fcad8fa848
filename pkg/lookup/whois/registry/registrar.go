package registry

import (
	"strings"

	"github.com/openrdap/rdap"
)

const (
	// maxNested is how deep a registrar may be nested in other entities.
	maxNested = 8

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
			if name := entityName(e); name != "" {
				return &Registrar{Name: name, IANAID: ianaID(e)}
			}
		}
		if r := registrar(e.Entities, depth+1); r != nil {
			return r
		}
	}
	return nil
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
	if name := property(card, "fn"); name != "" {
		return name
	}
	return property(card, "org")
}

// property reads a text property out of a jCard (RFC 7095) that need not be
// well formed: of a property only the name at its start and the value at its
// end count.
func property(card any, name string) string {
	for _, v := range list(card) {
		properties, ok := v.([]any)
		if !ok {
			continue // "vcard"
		}
		for _, p := range properties {
			fields, ok := p.([]any)
			if !ok || len(fields) < 3 {
				continue
			}
			if s, ok := fields[0].(string); !ok || !strings.EqualFold(s, name) {
				continue
			}
			value := fields[len(fields)-1]
			if parts, ok := value.([]any); ok && len(parts) > 0 {
				value = parts[0] // org: the units follow
			}
			if s, ok := value.(string); ok && text(s) != "" {
				return text(s)
			}
		}
	}
	return ""
}
