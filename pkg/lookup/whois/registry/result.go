package registry

import (
	"slices"
	"strconv"
	"strings"

	"github.com/openrdap/rdap"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

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
		ExpiresAt:   event(d.Events, "expiration"),
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
