package simnet

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// registration is a domain of com, what its registry answers, and what the
// service makes of it.
type registration struct {
	name   string // without .com
	answer string
	want   want
}

// whole is a full domain object with changes, and what is special about its
// result.
func whole(name string, changes object, w want) registration {
	return registration{name, registered(name+".com", changes), w}
}

// upstream is that a registry is of no use.
func upstream() want { return fails(fault.RDAPUpstream) }

// no are answers that are no use.
func no(name, answer string) registration { return registration{name, answer, upstream()} }

// registrations are answers of every kind, and quirks of registries that no fixture
// of package registry has.
func registrations() []registration {
	move := func(code int, to string) string { return body(code, "", "Location: "+to) }
	nobody := object{"entities": []object{{"roles": []string{"registrar"}, "vcardArray": []any{"vcard", []any{fn("No Number Ltd")}}}}}
	huge := `{"objectClassName":"domain","ldhName":"huge.com","x":"` + strings.Repeat("x", 2<<20) + `"}`
	there := want{"handle": something}
	return append([]registration{
		{"bare", rdap(object{"objectClassName": "domain", "ldhName": "bare.com"}), want{
			"handle": none, "status": listing{}, "registrar": none, "created_at": none, "updated_at": none, "expires_at": none,
			"nameservers": listing{}, "dnssec": false,
		}},
		whole("noid", nobody, want{"registrar.name": "No Number Ltd", "registrar.iana_id": ""}),
		whole("onestatus", object{"status": "active"}, want{"status": listing{"active"}}),
		{"missing", body(404, "{}"), fails(fault.NotFound)},
		{"errorobject", rdap(object{"errorCode": 404, "title": "Not Found"}), fails(fault.NotFound)},
		{"hang", hang, fails(fault.WhoisTimeout)},
		no("slowdown", body(429, "{}", "Retry-After: 60")),
		no("html", body(200, "<html>hello</html>")),
		no("another", registered("someone-else.com", nil)),
		no("huge", body(200, huge)),
		no("closes", ""),
		{"moved", move(302, "https://rdap.registry.net/new/moved.com"), there},
		{"relative", move(307, "/domain/relative.com"), there},
		{"permanent", move(308, "https://rdap-other.registry.net/domain/permanent.com"), want{"rdap_server": "https://rdap.registry.net/v1/"}},
		no("choices", body(300, "")),
		no("unchanged", body(304, "")),
		no("spinning", move(302, "https://rdap.registry.net/v1/domain/spinning.com")),
		no("toprivate", move(302, "https://rdap-private.registry.net/x")),
		no("toliteral", move(302, "https://10.0.0.8/x")),
		no("tohttp", move(302, "http://rdap.registry.net/x")),
		no("toport", move(302, "https://rdap.registry.net:8443/x")),
	}, quirks()...)
}

// quirks are members that are not quite what RFC 9083 says.
func quirks() []registration {
	latin := strings.Replace(rdap(object{"objectClassName": "domain", "ldhName": "latin.com", "handle": "caf#"}), "#", "\xe9", 1)
	twice := strings.Replace(registered("duplicate.com", object{"aaaaaa": "first"}), `"aaaaaa":`, `"handle":`, 1)
	named := func(name string, e object) registration {
		return whole(name, object{"entities": []object{e}}, want{"registrar.name": "Ex"})
	}
	created := func(name, date string) registration {
		events := []object{{"eventAction": "registration", "eventDate": date}}
		return whole(name, object{"events": events}, want{"created_at": none})
	}
	return []registration{
		{"duplicate", twice, want{"handle": "1234_DOMAIN_COM-VRSN"}},
		{"latin", latin, want{"handle": "caf\ufffd"}},
		named("listparams", entity("registrar", []any{"fn", []any{}, "text", "Ex"})), // .is
		named("spacedfn", entity("registrar", fn(" Ex "))),
		named("tworoles", with(entity("registrar", fn("Ex")), "roles", []string{"sponsor", "registrar"})),
		named("textids", with(entity("registrar", fn("Ex")), "publicIds", "292")),
		whole("fnnumber", object{"entities": []object{entity("registrar", []any{"fn", object{}, "text", 7})}}, want{"registrar.name": "7"}),
		whole("cardobject", object{"entities": []object{{"roles": []string{"registrar"}, "vcardArray": object{"fn": "Ex"}}}}, want{"registrar": none}),
		created("noleap", "2017-02-29"),
		created("yearzero", "0000-01-01T00:00:00Z"),
		created("longdate", strings.Repeat("2", 100)),
	}
}
