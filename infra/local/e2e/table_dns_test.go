package e2e

import (
	"fmt"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func lookUp(domain, typ string) string {
	return catalog.DNS().Path + "?domain=" + domain + "&type=" + typ
}

func answer(domain, typ, ttl, records string) string {
	return `{"domain":"` + domain + `","type":"` + typ + `","rcode":"NOERROR","resolver":"127.0.0.1","ttl":` + ttl + `,"records":[` + records + `]}`
}

func healthy() want { return result(answer("{name}", "A", "30", `{"address":"192.0.2.77"}`)) }

// dnsCases are what /v1/tools/dns answers by itself.
func dnsCases() []scenario {
	return append(misspelt(), []scenario{
		{name: "answered in full", steps: []step{
			pay(lookUp("b%C3%BCcher.example.com", "mx"), result(answer("xn--bcher-kva.example.com", "MX", "300", `{"preference":5,"exchange":"mail.example.com"}`))),
		}},
		{name: "no record type", steps: []step{
			pay(lookUp("example.com", "ANY"), fails(lookup.InvalidType).saying("A, AAAA, MX, TXT, CNAME, NS, SOA")),
		}},
		{name: "corrected after bad parameters", steps: []step{
			pay(lookUp("localhost", "A"), fails(lookup.InvalidDomain)), elsewhere(lookUp("example.com", "PTR"), fails(lookup.InvalidType)),
			elsewhere(lookUp("internal.example.com", "A"), result("")), again(result("").replayed()),
		}},
		{name: "the same question in other words", calls: 1, lookups: 1, steps: []step{
			pay(lookUp("{healthy}", "A"), healthy()),
			happens(func(r *run) {
				for _, same := range []string{"?domain=" + r.name, "?type=a&domain=" + strings.ToUpper(r.name) + ".", "?x=1&domain=" + r.name + "&type=A&utm=2"} {
					r.step(elsewhere(catalog.DNS().Path+same, healthy().replayed()))
				}
			}),
			elsewhere(catalog.DNS().Path+"?domain={name}&type=AAAA", spent("another request")),
			elsewhere("/v1/tools/ping", spent("another request")),
		}},
		{name: "no such name", steps: []step{pay(lookUp("nope.example.com", "A"), fails(lookup.NXDomain)), again(fails(lookup.NXDomain).replayed())}},
		// Lookups that fail on our side.
		{name: "resolver refuses, then answers", steps: []step{
			pay(lookUp("{refused}", "A"), fails(lookup.UpstreamUnavailable)), heal(), eventually(healthy()), again(healthy().replayed()),
		}},
		{name: "resolver is down", own: withoutResolver, steps: []step{pay(lookUp("example.com", "A"), fails(lookup.UpstreamUnavailable))}},
		{name: "resolver is silent, then answers", slow: "waits until a lookup has taken too long", lookups: 2, steps: []step{
			pay(lookUp("{silent}", "A"), fails(lookup.DNSTimeout)), heal(), eventually(healthy()), again(healthy().replayed()),
		}},
		{name: "in progress after the settlement", lookups: 1, steps: []step{
			inBackground(lookUp("{held}", "A"), healthy(), atTheResolver), again(fails(fault.PaymentInProgress).charge(moved)),
			heal(), finish(), again(healthy().replayed()),
		}},
		{name: "every place is taken", own: withOnePlace, lookups: 1, steps: []step{
			inBackground(lookUp("{held}", "A"), healthy(), atTheResolver),
			another(0, pay(lookUp("example.com", "A"), fails(fault.Overloaded)), again(fails(fault.Overloaded))),
			another(1, pay("/v1/tools/ping", result(""))), // looks nothing up
			finish(), again(healthy().replayed()), another(1, pay(lookUp("example.com", "A"), result(""))),
		}},
	}...)
}

// misspelt are query strings that do not have one domain name. Every name that nobody
// may ask about is in the tests of pkg/guard.
func misspelt() []scenario {
	var cases []scenario
	for query, says := range map[string]string{
		"": "missing",
		"?domain=example.com&%64omain=example.net":           "repeated",
		"?domain=example.com&x=" + strings.Repeat("x", 2048): "longer than 2048 bytes",
		"?domain=exa\xff\xfemple.com":                        "domain",
		"?domain=example.com%0d%0aHost:%20x":                 "character",
		"?domain=127.0.0.1":                                  "IP address",
	} {
		cases = append(cases, scenario{name: fmt.Sprintf("query %.40q", query), steps: []step{
			pay(catalog.DNS().Path+query, fails(lookup.InvalidDomain).saying(says)),
		}})
	}
	return cases
}

// pingCases are what the smoke test answers by itself.
func pingCases() []scenario {
	ok := result(`{"ok":true,"service":"` + catalog.Service + `"}`)
	path := catalog.Ping().Path
	return []scenario{
		{name: "input is ignored", steps: []step{
			pay(path+"?probe=1&domain=127.0.0.1&probe=%ff", ok), elsewhere(path, ok.replayed()), elsewhere(path+"?%zz;", ok.replayed()),
		}},
		{name: "no resolver is needed", own: withoutResolver, steps: []step{pay(path, ok)}},
	}
}

// toolCases are a payment that is sent over one transport and answered over the other
// too, with one settlement and one lookup: in built functions these are two processes
// on one table. Who repeats what, and under which key, is in the tests of pkg/service.
func toolCases() []scenario {
	return []scenario{{name: "by the path, and again by the tool", lookups: 1, steps: []step{
		pay(lookUp("{healthy}", "A"), healthy()), happens(answeredByTool),
	}}}
}

// answeredByTool: the tool has the last answer of the path, and its receipt.
func answeredByTool(r *run) {
	receipt, err := r.last.Receipt()
	c := &x402test.Client{HTTP: r.client}
	question := map[string]any{"domain": r.name}
	a, failed := c.Call(r.Context(), r.d.base+catalog.PathMCP, catalog.DNS().Tool, question, r.header, "")
	if err != nil || failed != nil || a.IsError || a.Text() != string(r.last.Body) || string(a.Structured) != a.Text() {
		r.Errorf("%s, and %s: %v, %v", r.last, a.Raw, err, failed)
	}
	if !a.Meta.Replayed || a.Meta.Receipt == nil || *a.Meta.Receipt != receipt {
		r.Errorf("receipts %+v and %+v", receipt, a.Meta.Receipt)
	}
}
