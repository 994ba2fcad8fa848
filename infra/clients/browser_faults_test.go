package clients

import (
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// again is what a visit of the same signature looks for.
func again(text, look string) map[string]any { return map[string]any{"says": text, "look": look} }

func faultVisits(*testing.T) []visit { return append(scriptedFaults(), realFaults()...) }

// realFaults are the service's own, brought about by its facilitator, its
// resolver or the request.
func realFaults() []visit {
	uncertain := pays("503 settlement_uncertain, then settled", "sameSignature", wwwPath, 2).with(again("Not known yet whether it is paid (settlement_uncertain)", "uncertain"))
	uncertain.settles = 2 // the same authorization, which moves once
	uncertain.before = func(s *scene) { s.books.plan(x402test.DropAfter) }
	busy := pays("503 facilitator_unavailable, not charged", "sameSignature", wwwPath, 2).with(again("Not charged yet (facilitator_unavailable)", "not-charged-yet"))
	busy.settles = 2
	busy.before = func(s *scene) { s.books.plan(x402test.TooMany) }
	refused := visit{
		name: "402 with the reason, then another signature", script: "refusedThenPaid", path: wwwPath, several: true,
		args: map[string]any{"says": "insufficient"}, signatures: 2, settles: 2, transfers: 1,
		before: func(s *scene) { s.books.plan(x402test.Refuse) },
	}
	nxdomain := pays("404 nxdomain is an answer", "chargedError", dnsPath+"?domain=gone.example.com", 2).
		with(map[string]any{"says": "This is an answer about the domain, so it is charged.", "look": "nxdomain"})
	return []visit{
		uncertain, busy, refused, nxdomain, owedVisit(),
		{name: "a name that is refused", script: "badParameter", path: dnsPath + "?domain=localhost", args: map[string]any{"says": "domain"}},
		{name: "a type that is refused", script: "badParameter", path: dnsPath + "?domain=www.example.com&type=BOGUS", args: map[string]any{"says": "type"}},
	}
}

// owedVisit is a lookup that the resolvers refuse, after the settlement; while the page
// shows that, they recover.
func owedVisit() visit {
	v := pays("owed, then answered", "sameSignature", dnsPath+"?domain=healed.refused.example.com", 2).
		with(again("Paid, and the answer is owed (upstream_unavailable)", "owed"))
	v.before = func(s *scene) {
		s.healed.Store(false)
		s.play(func(g *gateway, w http.ResponseWriter, r *http.Request) {
			pass(g, w, r)
			s.healed.Store(true)
		})
	}
	v.answer = `"192.0.2.77"`
	return v
}

// scriptedFaults are answers that the proxy gives in place of the service, or
// keeps from the browser.
func scriptedFaults() []visit {
	const same = "sameSignature"
	alone := again("This payment is being settled", "in-progress")
	alone["alone"] = true
	reload := again("The connection was lost", "")
	reload["lost"] = "reload"
	noReturn := pays("504, and no lookup is left", "chargedError", wwwPath, 1).
		with(map[string]any{"says": "the operator owes you a refund", "look": "refund", "again": false},
			settledThen(fails(504, 0, "dns_timeout", "true", false)))
	return []visit{
		pays("409 is sent again by itself", same, wwwPath, 2).with(alone, fails(409, 3, "payment_in_progress", "null", true)),
		pays("429", same, wwwPath, 2).with(again("Too many requests", "rate-limited"), fails(429, 1, "rate_limited", "null", true)),
		pays("503 overloaded", same, wwwPath, 2).with(again("Not charged yet (overloaded)", ""), fails(503, 1, "overloaded", "false", true)),
		pays("504 owed", same, wwwPath, 2).with(again("Paid, and the answer is owed (dns_timeout)", ""), settledThen(fails(504, 1, "dns_timeout", "true", true))),
		pays("a gateway's own page", same, wwwPath, 2).with(again("Answer 503 could not be read", ""), says(503, 0, "<html>Service Unavailable</html>")),
		pays("request lost", same, wwwPath, 2).with(again("The connection was lost", "connection-lost"), cutBefore),
		pays("answer lost", same, wwwPath, 2).with(again("The connection was lost", ""), cutAfter),
		pays("answer cut in two", same, wwwPath, 2).with(again("The connection was lost", ""), cutWithin),
		pays("answer lost, then a reload", same, wwwPath, 2).with(reload, cutAfter),
		pays("silence", "silence", wwwPath, 1),
		pays("a reload while sending", "reloadWhileSending", wwwPath, 1),
		noReturn,
		pays("a part of the answer is owed", "stillOwed", wwwPath, 2).with(nil, owing),
	}
}

// owing lets the service answer, as a bundle that owes a part.
func owing(g *gateway, w http.ResponseWriter, r *http.Request) {
	w.Header().Set(x402.HeaderOwed, "ssl, headers")
	pass(g, w, r)
}
