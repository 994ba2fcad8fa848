package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// lookup is the path of a DNS lookup.
func lookup(domain, typ string) string {
	return catalog.DNS().Path + "?domain=" + domain + "&type=" + typ
}

// answer is the body of a DNS result with NOERROR.
func answer(domain, typ, ttl, records string) string {
	return `{"domain":"` + domain + `","type":"` + typ + `","rcode":"NOERROR","resolver":"127.0.0.1","ttl":` + ttl + `,"records":[` + records + `]}`
}

// healthy is the answer for the case's own lab name.
func healthy() want { return result(answer("{name}", "A", "30", `{"address":"192.0.2.77"}`)) }

// dnsCases are what /v1/tools/dns answers by itself.
func dnsCases() []scenario {
	return slices.Concat(recordCases(), domainCases(), typeCases(), lookupCases(), owedCases())
}

// lookupCases are lookups that end in an answer, or never begin.
func lookupCases() []scenario {
	return []scenario{
		{name: "corrected after bad parameters", steps: []step{
			pay(lookup("localhost", "A"), fails(fault.InvalidDomain)), elsewhere(lookup("example.com", "PTR"), fails(fault.InvalidType)),
			corrected(lookup("internal.example.com", "A"), result("")), again(result("").replayed()),
		}},
		{name: "the same question in other words", calls: 1, transfers: 1, lookups: 1, steps: []step{
			pay(lookup("{healthy}", "A"), healthy()),
			happens(func(r *run) {
				for _, same := range []string{"?domain=" + r.name, "?type=a&domain=" + strings.ToUpper(r.name) + ".", "?x=1&domain=" + r.name + "&type=A&utm=2"} {
					r.step(elsewhere(catalog.DNS().Path+same, healthy().replayed()))
				}
			}),
			elsewhere(catalog.DNS().Path+"?domain={name}&type=AAAA", spent("another request")),
			elsewhere("/v1/tools/ping", spent("another request")),
		}},

		{name: "declined: nothing is looked up", settle: behaviours{x402test.Refuse}, calls: 1, lookups: never, steps: []step{
			pay(lookup("{healthy}", "A"), declined("settlement refused: invalid_exact_evm_insufficient_balance")),
		}},
		{name: "uncertain: nothing is looked up", settle: behaviours{x402test.FailAfter}, calls: 1, transfers: 1, lookups: never, steps: []step{
			pay(lookup("{healthy}", "A"), fails(fault.SettlementUncertain)),
		}},
		{name: "no such name", steps: []step{pay(lookup("nope.example.com", "A"), fails(fault.NXDomain)), again(fails(fault.NXDomain).replayed())}},
		{name: "an alias that leads nowhere", steps: []step{pay(lookup("dangling.example.com", "A"), fails(fault.NXDomain).saying("alias"))}},
		{name: "SERVFAIL", lookups: 1, steps: []step{
			pay(lookup("{servfail}", "A"), result(`{"domain":"{name}","type":"A","rcode":"SERVFAIL","resolver":"127.0.0.1","ttl":null,"records":[]}`)),
			again(result("").replayed()),
		}},
		{name: "resolver without EDNS", lookups: 2, steps: []step{pay(lookup("{formerr}", "A"), healthy())}},
	}
}

// owedCases are lookups that fail on our side, and time that passes.
func owedCases() []scenario {
	return []scenario{
		{name: "resolver refuses, then answers", steps: []step{
			pay(lookup("{refused}", "A"), fails(fault.UpstreamUnavailable)), heal(), eventually(healthy()), again(healthy().replayed()),
		}},
		{name: "resolver cannot", steps: []step{pay(lookup("{notimp}", "A"), fails(fault.UpstreamUnavailable))}},
		{name: "resolver is down", own: withoutResolver, steps: []step{pay(lookup("example.com", "A"), fails(fault.UpstreamUnavailable))}},
		{name: "resolver is silent, then answers", slow: "waits until a lookup has taken too long", lookups: 2, steps: []step{
			pay(lookup("{silent}", "A"), fails(fault.DNSTimeout)), heal(), eventually(healthy()), again(healthy().replayed()),
		}},
		{name: "in progress after the settlement", lookups: 1, steps: []step{
			inBackground(lookup("{held}", "A"), healthy(), atTheResolver), again(fails(fault.PaymentInProgress).charge(moved)),
			heal(), finish(), again(healthy().replayed()),
		}},
		{name: "every place is taken", own: withOnePlace, lookups: 1, steps: []step{
			inBackground(lookup("{held}", "A"), healthy(), atTheResolver),
			another(0, pay(lookup("example.com", "A"), fails(fault.Overloaded)), again(fails(fault.Overloaded))),
			another(1, pay("/v1/tools/ping", result(""))), // looks nothing up
			finish(), again(healthy().replayed()), another(1, pay(lookup("example.com", "A"), result(""))),
		}},
		{name: "owed answers outlive the window", needs: skipTime, own: alone, lookups: 2, steps: []step{
			pay(lookup("{refused}", "A"), fails(fault.UpstreamUnavailable)), heal(), later(10 * time.Minute), again(healthy()), again(healthy().replayed()),
		}},
		{name: "too early for the next lookup", needs: skipTime, own: alone, lookups: 2, steps: []step{
			pay(lookup("{refused}", "A"), fails(fault.UpstreamUnavailable)), later(2 * time.Second), again(fails(fault.UpstreamUnavailable)),
			heal(), again(fails(fault.UpstreamUnavailable).with("Retry-After", "10")),
		}},
		{name: "five lookups and no more", needs: skipTime, own: alone, lookups: 5, steps: []step{
			pay(lookup("{refused}", "A"), fails(fault.UpstreamUnavailable)), later(2 * time.Second),
			again(fails(fault.UpstreamUnavailable)), later(11 * time.Second),
			again(fails(fault.UpstreamUnavailable)), later(61 * time.Second),
			again(fails(fault.UpstreamUnavailable)), later(601 * time.Second),
			again(fails(fault.UpstreamUnavailable).exhausted()), heal(), later(time.Hour),
			again(fails(fault.UpstreamUnavailable).exhausted()),
		}},
	}
}

// recordCases: every record type, and what zones hold besides plain values.
func recordCases() []scenario {
	list := bigTXT()
	bigRecord := `{"text":"` + strings.Join(list, "") + `","strings":["` + strings.Join(list, `","`) + `"]}`
	var cases []scenario
	for _, c := range []struct{ name, domain, typ, ttl, records, normal string }{
		{"A", "www.example.com", "A", "120", `{"address":"192.0.2.10"},{"address":"192.0.2.11"}`, ""},
		{"AAAA", "www.example.com", "AAAA", "600", `{"address":"2001:db8::10"}`, ""},
		{"MX", "example.com", "MX", "300", `{"preference":10,"exchange":"mx1.example.com"},{"preference":20,"exchange":"mx2.example.com"}`, ""},
		{"null MX", "nomail.example.com", "MX", "3600", `{"preference":0,"exchange":"."}`, ""},
		{"TXT", "txt.example.com", "TXT", "60", `{"text":"v=spf1 include:_spf.example.net -all","strings":["v=spf1 include:_spf.example.net ","-all"]},` +
			`{"text":"\u003cscript\u003ealert(1)\u003c/script\u003e \"quoted\" back\\slash","strings":["\u003cscript\u003ealert(1)\u003c/script\u003e \"quoted\" back\\slash"]}`, ""},
		{"binary TXT", "binary.example.com", "TXT", "3600", `{"text":"\\255\\254\u0000tailcaféhalf` + "é" + `whole","strings":["\\255\\254\u0000tail","café","half\\195","\\169whole"]}`, ""},
		{"TXT under an underscore", "_dmarc.example.com", "TXT", "3600", `{"text":"v=DMARC1; p=reject","strings":["v=DMARC1; p=reject"]}`, ""},
		{"TXT over TCP", "big.example.com", "TXT", "60", bigRecord, ""},
		{"CNAME", "shop.example.com", "CNAME", "300", `{"target":"cdn.example.net"}`, ""},
		{"NS", "example.com", "NS", "3600", `{"target":"ns1.example.com"},{"target":"ns2.example.net"}`, ""},
		{"SOA", "example.com", "SOA", "3600", `{"mname":"ns1.example.com","rname":"hostmaster.example.com","serial":2026110501,"refresh":7200,"retry":900,"expire":1209600,"minimum":300}`, ""},
		{"A behind aliases", "shop.example.com", "A", "60", `{"address":"198.51.100.7"}`, ""},
		{"no data", "txt.example.com", "AAAA", "null", ``, ""},
		{"no data behind an alias", "alias.example.com", "MX", "null", ``, ""},
		{"a private address", "internal.example.com", "A", "60", `{"address":"10.0.0.1"}`, ""},
		{"letter case and the dot of the root", "WWW.Example.COM.", "aaaa", "600", `{"address":"2001:db8::10"}`, "www.example.com"},
		{"Unicode", "b%C3%BCcher.example.com", "A", "300", `{"address":"192.0.2.20"}`, "xn--bcher-kva.example.com"},
		{"full-width letters and dots", url.QueryEscape("ｗｗｗ。ｅｘａｍｐｌｅ．ｃｏｍ"), "AAAA", "600", `{"address":"2001:db8::10"}`, "www.example.com"},
	} {
		normal := c.domain
		if c.normal != "" {
			normal = c.normal
		}
		w := result(answer(normal, strings.ToUpper(c.typ), c.ttl, c.records))
		cases = append(cases, scenario{name: "record: " + c.name, steps: []step{pay(lookup(c.domain, c.typ), w), again(w.replayed())}})
	}
	return append(cases, scenario{name: "record: A by default", steps: []step{
		pay(catalog.DNS().Path+"?domain=internal.example.com", result(answer("internal.example.com", "A", "60", `{"address":"10.0.0.1"}`))),
	}})
}

// domainCases are names that nobody may ask about: 400, not charged.
func domainCases() []scenario {
	var cases []scenario
	for _, c := range slices.Concat(misspelt(), notPublic()) {
		cases = append(cases, scenario{name: "domain: " + c.name, steps: []step{
			pay(catalog.DNS().Path+c.query, fails(fault.InvalidDomain).saying(c.says)),
		}})
	}
	return cases
}

// badDomain is a query string, and what the answer says about it.
type badDomain struct{ name, query, says string }

// misspelt are parameters and values that are no domain name.
func misspelt() []badDomain {
	esc := url.QueryEscape
	label := strings.Repeat("a", 63)
	return []badDomain{
		{"missing", "", "missing"},
		{"missing beside a type", "?type=A", "missing"},
		{"empty", "?domain=", "empty"},
		{"repeated", "?domain=example.com&domain=example.com", "repeated"},
		{"repeated, once by escape", "?domain=example.com&%64omain=example.net", "repeated"},
		{"a semicolon", "?domain=example.com;type=A", "no domain name has"},
		{"a broken escape", "?domain=exa%zzmple.com", "no domain name has"},
		{"overlong", "?domain=" + strings.Repeat(label+".", 4) + "com", "too long"},
		{"overlong Unicode", "?domain=" + esc(strings.Repeat("ü", 100)) + ".com", "too long"},
		{"overlong query", "?domain=example.com&x=" + strings.Repeat("x", 2048), "longer than 2048 bytes"},
		{"not UTF-8", "?domain=exa%ff%femple.com", "UTF-8"},
		{"overlong UTF-8", "?domain=%c0%ae.com", "UTF-8"},
		{"a surrogate", "?domain=%ed%a0%80.com", "UTF-8"},
		{"raw bytes", "?domain=exa\xff\xfemple.com", "domain"},
		{"hyphen", "?domain=-example.com", "hyphen"},
		{"URL", "?domain=" + esc("https://example.com/"), "without scheme"},
		{"path", "?domain=" + esc("example.com/../etc/passwd"), "without scheme"},
		{"full-width slash", "?domain=" + esc("example.com／x"), "domain"},
		{"space", "?domain=exam+ple.com", "character"},
		{"NUL", "?domain=example.com%00", "character"},
		{"line break", "?domain=example.com%0d%0aHost:%20x", "character"},
		{"right-to-left override", "?domain=" + esc("exam\u202eple.com"), "domain"},
		{"joiner", "?domain=" + esc("a\u200db.com"), "domain"},
		{"broken punycode", "?domain=xn--a.com", "internationalised"},
		{"markup", "?domain=" + esc("<script>.com"), "character"},
	}
}

// notPublic are addresses, and names that nobody outside may ask about.
func notPublic() []badDomain {
	esc := url.QueryEscape
	return []badDomain{
		{"IPv4", "?domain=127.0.0.1", "IP address"},
		{"public IPv4", "?domain=8.8.8.8", "IP address"},
		{"IPv4 with a dot", "?domain=127.0.0.1.", "IP address"},
		{"short IPv4", "?domain=127.1", "IP address"},
		{"hexadecimal IPv4", "?domain=0x7f.0.0.1", "IP address"},
		{"octal IPv4", "?domain=0177.0.0.01", "IP address"},
		{"IPv6 in brackets", "?domain=" + esc("[fe80::1%25eth0]"), "domain"},
		{"metadata address", "?domain=169.254.169.254", "IP address"},
		{"under localhost", "?domain=a.localhost", "not public"},
		{"localhost in circles", "?domain=" + esc("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ"), "domain"},
		{"long s in localhost", "?domain=" + esc("a.localhoſt"), "not public"},
		{"full-width mDNS", "?domain=" + esc("printer．ｌｏｃａｌ"), "not public"},
		{"soft hyphen in local", "?domain=" + esc("printer.lo\u00adcal"), "not public"},
		{"internal", "?domain=metadata.google.internal", "not public"},
		{"metadata host", "?domain=metadata.goog", "not public"},
		{"reverse tree", "?domain=1.0.0.127.in-addr.arpa", "not public"},
		{"onion", "?domain=facebookcorewwwi.onion", "not public"},
	}
}

func typeCases() []scenario {
	var cases []scenario
	for _, c := range []struct{ name, query string }{
		{"unknown", "&type=PTR"}, {"ANY", "&type=ANY"}, {"a number", "&type=1"}, {"empty", "&type="},
		{"repeated", "&type=A&type=A"}, {"a list", "&type=A,MX"}, {"long s", "&type=%C5%BFOA"}, {"overlong", "&type=" + strings.Repeat("A", 500)},
	} {
		cases = append(cases, scenario{name: "type: " + c.name, steps: []step{
			pay(catalog.DNS().Path+"?domain=example.com"+c.query, fails(fault.InvalidType).saying("A, AAAA, MX, TXT, CNAME, NS, SOA")),
		}})
	}
	return cases
}

// pingCases are what the smoke test answers by itself.
func pingCases() []scenario {
	ok := result(`{"ok":true,"service":"` + catalog.Service + `"}`)
	path := catalog.Ping().Path
	return []scenario{
		{name: "no input", steps: []step{pay(path, ok)}},
		{name: "input is ignored", steps: []step{
			pay(path+"?probe=1&domain=127.0.0.1&probe=%ff", ok), elsewhere(path, ok.replayed()), elsewhere(path+"?%zz;", ok.replayed()),
		}},
		{name: "no resolver is needed", own: withoutResolver, steps: []step{pay(path, ok)}},
		{name: "HEAD of a paid URL", calls: 1, transfers: 1, steps: []step{pay(path, ok), ask(http.MethodHead, path, nil, unpaid().empty())}},
	}
}
