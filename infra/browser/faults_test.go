package browser

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// again is what a scenario of the same signature looks for.
func again(text, look string) map[string]any { return map[string]any{"says": text, "look": look} }

func TestFaults(t *testing.T) { playAll(t, append(scriptedFaults(), realFaults()...)) }

// realFaults are the service's own, brought about by its facilitator, its
// resolver or the request.
func realFaults() []scenario {
	uncertain := paysOnce("503 settlement_uncertain, then settled", "sameSignature", wwwPath, 2).with(again("Not known yet whether it is paid (settlement_uncertain)", "uncertain"))
	uncertain.settles = 2 // the same authorization, which moves once
	uncertain.before = func(w *world) { w.books.plan(x402test.DropAfter) }
	busy := paysOnce("503 facilitator_unavailable, not charged", "sameSignature", wwwPath, 2).with(again("Not charged yet (facilitator_unavailable)", "not-charged-yet"))
	busy.settles = 2
	busy.before = func(w *world) { w.books.plan(x402test.TooMany) }
	refused := scenario{
		name: "402 with the reason, then another signature", script: "refusedThenPaid", path: wwwPath, several: true,
		args: map[string]any{"says": "insufficient"}, signatures: 2, settles: 2, transfers: 1,
		before: func(w *world) { w.books.plan(x402test.Refuse) },
	}
	nxdomain := paysOnce("404 nxdomain is an answer", "chargedError", dnsPath+"?domain=gone.example.com", 2).
		with(map[string]any{"says": "This is an answer about the domain, so it is charged.", "look": "nxdomain"})
	return []scenario{
		uncertain, busy, refused, nxdomain, owedScenario(),
		{name: "a name that is refused", script: "badParameter", path: dnsPath + "?domain=localhost", args: map[string]any{"says": "domain"}},
		{name: "a type that is refused", script: "badParameter", path: dnsPath + "?domain=www.example.com&type=BOGUS", args: map[string]any{"says": "type"}},
	}
}

// owedScenario is a lookup that the resolvers refuse, after the settlement;
// while the page shows that, they recover.
func owedScenario() scenario {
	s := paysOnce("owed, then answered", "sameSignature", dnsPath+"?domain=healed.refused.example.com", 2).
		with(again("Paid, and the answer is owed (upstream_unavailable)", "owed"))
	s.before = func(w *world) {
		w.proxy.play(func(p *proxy, rw http.ResponseWriter, r *http.Request) {
			pass(p, rw, r)
			w.dns.heal()
		})
	}
	s.after = contains(`"192.0.2.77"`)
	return s
}

// scriptedFaults are answers that the proxy gives in place of the service, or
// keeps from the browser.
func scriptedFaults() []scenario {
	const same = "sameSignature"
	alone := again("This payment is being settled", "in-progress")
	alone["alone"] = true
	reload := again("The connection was lost", "")
	reload["lost"] = "reload"
	noReturn := paysOnce("504, and no lookup is left", "chargedError", wwwPath, 1).
		with(map[string]any{"says": "the operator owes you a refund", "look": "refund", "again": false},
			settledThen(fails(504, 0, "dns_timeout", "DNS resolution timed out.", "true", false)))
	return []scenario{
		paysOnce("409 is sent again by itself", same, wwwPath, 2).with(alone, fails(409, 3, "payment_in_progress", "This authorization is already being settled.", "null", true)),
		paysOnce("429", same, wwwPath, 2).with(again("Too many requests", "rate-limited"), fails(429, 1, "rate_limited", "Too many requests from this client.", "null", true)),
		paysOnce("503 overloaded", same, wwwPath, 2).with(again("Not charged yet (overloaded)", ""), fails(503, 1, "overloaded", "The concurrency cap is reached.", "false", true)),
		paysOnce("504 owed", same, wwwPath, 2).with(again("Paid, and the answer is owed (dns_timeout)", ""), settledThen(fails(504, 1, "dns_timeout", "DNS resolution timed out.", "true", true))),
		paysOnce("a gateway's own page", same, wwwPath, 2).with(again("Answer 503 could not be read", ""), says(503, 0, "<html>Service Unavailable</html>")),
		paysOnce("request lost", same, wwwPath, 2).with(again("The connection was lost", "connection-lost"), cutBefore),
		paysOnce("answer lost", same, wwwPath, 2).with(again("The connection was lost", ""), cutAfter),
		paysOnce("answer cut in two", same, wwwPath, 2).with(again("The connection was lost", ""), cutWithin),
		paysOnce("answer lost, then a reload", same, wwwPath, 2).with(reload, cutAfter),
		paysOnce("silence", "silence", wwwPath, 1),
		paysOnce("a reload while sending", "reloadWhileSending", wwwPath, 1),
		noReturn,
		paysOnce("a part of the answer is owed", "stillOwed", wwwPath, 2).with(nil, owing),
	}
}

// owing lets the service answer, as a bundle that owes a part.
func owing(p *proxy, w http.ResponseWriter, r *http.Request) {
	w.Header().Set(x402.HeaderOwed, "ssl, headers")
	p.forward.ServeHTTP(w, r)
}

// decoded is a PAYMENT-SIGNATURE as plain values.
func decoded(t *testing.T, header string) map[string]any {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// plain is any value as JSON with sorted keys.
func plain(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
