package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func walletVisits(*testing.T) []visit {
	whole := payingVisit("pay, copy, download, reload and replay", "payAndReplay", wwwPath+"&trace=kept%20as%20it%20is", 2)
	whole.answer = `"192.0.2.10"`
	whole.checkAfter = func(t *testing.T, s *scene) {
		sent := s.paidRequests()
		if sent[0].uri != whole.path {
			t.Errorf("asked for %s, want %s", sent[0].uri, whole.path)
		}
		checkEcho(t, s, sent[0].signature)
	}
	anew := visit{name: "paid for, and for a new answer", script: "payTwice", path: wwwPath, signatures: 2, settlements: 2, transfers: 2, signaturesMayDiffer: true, questions: 2}
	return []visit{
		whole, anew,
		payingVisit("several wallets", "severalWallets", wwwPath, 1),
		payingVisit("window.ethereum alone", "oldWallet", wwwPath, 1),
		{name: "no wallet, then a late one", script: "noWallet", path: wwwPath},
		{name: "a phone without a wallet", script: "phoneWithoutWallet", path: wwwPath},
		{name: "connection refused", script: "connectRefused", path: wwwPath},
		payingVisit("wrong chain, switch refused, then added", "wrongChain", wwwPath, 1),
		payingVisit("signature refused", "signatureRefused", wwwPath, 1),
		payingVisit("balance too low, then unknown", "balance", wwwPath, 1),
		{name: "account and chain change in the wallet", script: "changesInTheWallet", path: wwwPath},
		{name: "an authorization that became old", script: "oldAuthorization", path: wwwPath},
	}
}

// checkEcho checks that a payment repeats the terms and the extensions of the offer. The
// payment's retry token must differ from the token of the next offer. The payment need not
// repeat the resource, nor the extensions bazaar and offer-receipt.
func checkEcho(t *testing.T, s *scene, header string) {
	type echo struct {
		Accepted   any
		Extensions map[string]any
	}
	c := &x402test.Client{HTTP: http.DefaultClient}
	offered := testbed.Must(c.Challenge(t.Context(), s.url+wwwPath))
	raw := testbed.Must(json.Marshal(args{"accepted": offered.Accepts[0], "extensions": offered.Extensions}))
	sent, want := decodeJSON[echo](t, []byte(decodeHeader(header))), decodeJSON[echo](t, raw)
	token, other := fmt.Sprint(sent.Extensions[x402.ExtensionToken]), fmt.Sprint(want.Extensions[x402.ExtensionToken])
	if !regexp.MustCompile(`info:map\[token:[A-Za-z0-9_-]{22}\]`).MatchString(token) || token == other {
		t.Errorf("the retry token was sent as %s, and the next offer's is %s", token, other)
	}
	delete(sent.Extensions, x402.ExtensionToken)
	for _, name := range []string{x402.ExtensionToken, x402.ExtensionReceipt, "bazaar"} {
		delete(want.Extensions, name)
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("offered (-) and sent (+): %s", diff)
	}
}

func pageVisits(*testing.T) []visit {
	var paths []string
	for _, op := range catalog.All() {
		paths = append(paths, strings.TrimPrefix(op.ExampleURL("http://x"), "http://x"))
	}
	ping := payingVisit("ping takes no domain", "payHere", "/v1/tools/ping", 1)
	ping.answer = `"ok":true`
	hostile := payingVisit("hostile values in the answer", "hostileAnswer", dnsPath+"?domain=txt.example.com&type=TXT", 1)
	bare := payingVisit("the bare address and its form", "bare", dnsPath, 1)
	bare.answer = `"2001:db8::1"`
	return []visit{
		{name: "hostile links", script: "hostile", path: dnsPath, args: args{"values": hostileValues()}},
		payingVisit("a wallet with a hostile name", "hostilePaid", wwwPath, 1),
		hostile,
		{name: "scrolls to the button", script: "scrollsToTheButton", path: wwwPath},
		{name: "an internationalised name", script: "internationalised", path: dnsPath},
		{name: "names that are refused", script: "refusedNames", path: dnsPath, args: args{
			"names": []string{"localhost", "127.0.0.1", "printer.local", "db.internal", "[::1]", "0x7f.1", "example.com:8080", strings.Repeat("a", 300)},
		}},
		{name: "a form keeps what was typed", script: "keepsWhatWasTyped", path: dnsPath},
		{name: "policy", script: "policy", path: wwwPath},
		payingVisit("with the keyboard alone", "keyboard", dnsPath, 1),
		bare,
		{name: "without script", script: "withoutScript", path: wwwPath},
		{name: "every operation", script: "everyPage", args: args{"paths": paths}},
		{name: "every answer", script: "everyAnswer"},
		{name: "a long chain of redirects", script: "longChain"},
		{name: "long texts, and many", script: "longTexts"},
		{name: "an expired certificate", script: "expiredCertificate"},
		{name: "a registration that has ended", script: "endedRegistration"},
		ping,
		{name: "documentation", script: "documentation", path: "/docs"},
		{name: "nothing moves", script: "nothingMoves", path: "/docs", args: args{"paths": []string{"/docs", "/docs#retries", "/docs#errors", "/docs#error-nxdomain", "/nowhere", wwwPath, dnsPath, "/v1/tools/ping"}}},
		{name: "documentation, links within it", script: "docsAnchors", path: "/docs"},
		{name: "documentation, contents", script: "docsContents", path: "/docs"},
		{name: "documentation, tabs", script: "docsTabs", path: "/docs"},
		{name: "documentation, search", script: "docsSearch", path: "/docs"},
		{name: "documentation, search by keyboard", script: "docsSearchByKeyboard", path: "/docs"},
		{name: "documentation, search shown", script: "docsSearchShown", path: "/docs"},
		{name: "documentation, search opens", script: "docsSearchOpens", path: "/docs"},
		{name: "documentation, narrow", script: "docsNarrow", path: "/docs"},
		{name: "documentation, room", script: "docsRoom", path: "/docs"},
		{name: "documentation, without script", script: "docsWithoutScript", path: "/docs"},
		{name: "an unknown path", script: "nothingHere", path: "/v1/nothing?here=%3Cscript%3E"},
	}
}

// hostileValues returns values that a hostile link can put into the query. None of them is a
// valid name.
func hostileValues() []string {
	return []string{
		`<script>window.owned=1</script>`, `"><img src=x onerror=owned=1>`, `'); owned=1; ('`, `</code></script><script>owned=1</script>`,
		"`${owned=1}`", `javascript:owned=1`, `{{js}}`, `&lt;b&gt;`, `a"b'c<d>e&f`, `--><svg onload=owned=1>`,
		"\u202egro.elpmaxe", "\u2066x\u2069.example", "a\nb\tc", strings.Repeat("a", 2000), strings.Repeat("\u05d0", 120),
	}
}

// sameSignatureArgs returns the arguments of the script sameSignature. text is a text that the
// page must show, and look is the name of the picture.
func sameSignatureArgs(text, look string) args { return args{"says": text, "look": look} }

// faultVisits returns visits in which the service itself reports an error.
func faultVisits(*testing.T) []visit {
	uncertain := payingVisit("503 settlement_uncertain, then settled", "sameSignature", wwwPath, 2).withPlan(sameSignatureArgs("Payment not confirmed yet", "uncertain"))
	uncertain.settlements = 2 // both settlements have the same authorization, which moves money once
	uncertain.prepare = func(s *scene) { s.books.Plan("", x402test.DropAfter) }
	busy := payingVisit("503 facilitator_unavailable, not charged", "sameSignature", wwwPath, 2).withPlan(sameSignatureArgs("Not charged yet", "not-charged-yet"))
	busy.settlements = 2
	busy.prepare = func(s *scene) { s.books.Plan("", x402test.TooMany) }
	refused := visit{
		name: "402 with the reason, then another signature", script: "refusedThenPaid", path: wwwPath, signaturesMayDiffer: true,
		args: args{"says": "insufficient"}, signatures: 2, settlements: 2, transfers: 1,
		prepare: func(s *scene) { s.books.Plan("", x402test.Refuse) },
	}
	nxdomain := payingVisit("404 nxdomain is an answer", "chargedError", dnsPath+"?domain=gone.example.com", 2).
		withPlan(args{"says": "That is the answer you paid for.", "look": "nxdomain"})
	// The resolvers refuse the name until the service has replied that it owes the answer.
	owed := payingVisit("owed, then answered", "sameSignature", dnsPath+"?domain=healed.refused.example.com", 2).
		withPlan(sameSignatureArgs("Paid. We still owe you the answer", "owed"))
	owed.answer = `"192.0.2.77"`
	owed.prepare = func(s *scene) {
		s.healed.Store(false)
		s.setPlan(func(r *testbed.Relayed) {
			r.Pass()
			s.healed.Store(true)
		})
	}
	return []visit{
		uncertain, busy, refused, nxdomain, owed,
		{name: "a name that is refused", script: "badParameter", path: dnsPath + "?domain=localhost", args: args{"says": "domain"}},
		{name: "a type that is refused", script: "badParameter", path: dnsPath + "?domain=www.example.com&type=BOGUS", args: args{"says": "type"}},
	}
}

// lossVisits returns visits in which the gateway loses or replaces an answer.
func lossVisits(*testing.T) []visit {
	const same = "sameSignature"
	alone := func(text, look string) args {
		return args{"says": text, "look": look, "alone": true}
	}
	reload := sameSignatureArgs("Connection lost", "")
	reload["lost"] = "reload"
	noReturn := payingVisit("504, and no lookup is left", "chargedError", wwwPath, 1).
		withPlan(args{"says": "You will be refunded $0.005", "look": "refund", "again": false},
			keepReceiptThen(answerWithError(504, 0, "dns_timeout", "true", false)))
	return []visit{
		payingVisit("409 is sent again by itself", same, wwwPath, 2).withPlan(alone("Your payment is being processed", "in-progress"), answerWithError(409, 3, "payment_in_progress", "null", true)),
		payingVisit("429", same, wwwPath, 2).withPlan(sameSignatureArgs("Too many requests", "rate-limited"), answerWithError(429, 1, "rate_limited", "null", true)),
		payingVisit("503 overloaded", same, wwwPath, 2).withPlan(sameSignatureArgs("Not charged yet", ""), answerWithError(503, 1, "overloaded", "false", true)),
		payingVisit("504 owed", same, wwwPath, 2).withPlan(sameSignatureArgs("Paid. We still owe you the answer", ""), keepReceiptThen(answerWithError(504, 1, "dns_timeout", "true", true))),
		payingVisit("a gateway's own page", same, wwwPath, 2).withPlan(sameSignatureArgs("We can’t read what the server sent", "unreadable"), answerWith(503, 0, "<html>Service Unavailable</html>")),
		payingVisit("request lost, sent again by itself", same, wwwPath, 2).withPlan(alone("Connection lost", ""), dropRequest),
		payingVisit("request lost", same, wwwPath, 2).withPlan(sameSignatureArgs("Connection lost", "connection-lost"), dropRequest),
		payingVisit("lost twice, sent again by itself", same, wwwPath, 3).withPlan(alone("Connection lost", ""), dropAnswer, dropRequest),
		payingVisit("504 owed, sent again by itself", same, wwwPath, 2).
			withPlan(alone("Paid. We still owe you the answer", ""), keepReceiptThen(answerWithError(504, 1, "dns_timeout", "true", true))),
		payingVisit("answer lost", same, wwwPath, 2).withPlan(sameSignatureArgs("Connection lost", ""), dropAnswer),
		payingVisit("answer cut in two", same, wwwPath, 2).withPlan(sameSignatureArgs("Connection lost", ""), dropHalf),
		payingVisit("answer lost, then a reload", same, wwwPath, 2).withPlan(reload, dropAnswer),
		payingVisit("silence", "silence", wwwPath, 1),
		payingVisit("a reload while sending", "reloadWhileSending", wwwPath, 1),
		noReturn,
		payingVisit("504, no lookup is left, and there is a contact", "chargedError", wwwPath, 1).
			withPlan(args{"says": "If you have a question, contact us.", "contact": "https://example.com/contact", "again": false},
				keepReceiptThen(answerWithError(504, 0, "dns_timeout", "true", false))),
		payingVisit("a part of the answer is owed", "stillOwed", wwwPath, 2).withPlan(nil, addOwedMark),
	}
}

// addOwedMark lets the service answer, and adds the mark that a bundle's answer has while the
// service still owes a part of it.
func addOwedMark(r *testbed.Relayed) {
	r.ResponseWriter.Header().Set(x402.HeaderOwed, "ssl, headers")
	r.Pass()
}

// moneyVisits returns visits that could mislead the payer or the page into a second payment.
// Each visit must lead to one payment at most.
func moneyVisits(*testing.T) []visit {
	odd := func(short, last string) args { return args{"short": short, "last": last} }
	clock := payingVisit("a clock that is wrong", "clockOff", wwwPath, 2)
	clock.signaturesMayDiffer = true
	return []visit{
		payingVisit("a slow chain while signing", "eventWhileSigning", wwwPath, 1),
		{name: "two changes in a row", script: "changesInARow", path: wwwPath},
		payingVisit("the chain changes while signing", "chainWhileSigning", wwwPath, 1),
		payingVisit("an old copy of the page signs", "historyCopy", wwwPath, 2).withPlan(args{"by": "sign"}, dropAnswer),
		payingVisit("an old copy of the page is shown", "historyCopy", wwwPath, 2).withPlan(args{"by": "pageshow"}, dropAnswer),
		payingVisit("several tabs", "tabs", wwwPath, 2).withPlan(nil, dropAnswer),
		payingVisit("another address in doubt", "otherAddress", wwwPath, 2).withPlan(nil, dropAnswer),
		payingVisit("storage off", "storageOff", wwwPath, 2).withPlan(nil, dropAnswer),
		{name: "an offer that changed", script: "newTerms", path: wwwPath, plan: []step{answerWithNewOffer}, signatures: 1},
		payingVisit("a price that changed in doubt", "newPrice", wwwPath, 2).withPlan(nil, dropRequest),
		clock,
		payingVisit("an odd wallet, compact signatures", "oddWallet", wwwPath, 1).withPlan(odd("compact", "1b")),
		payingVisit("an odd wallet, compact odd signatures", "oddWallet", wwwPath, 1).withPlan(odd("compact", "1c")),
		payingVisit("an odd wallet, low signatures", "oddWallet", wwwPath, 1).withPlan(odd("low", "1b")),
		payingVisit("an odd wallet, low odd signatures", "oddWallet", wwwPath, 1).withPlan(odd("low", "1c")),
	}
}

// doubtVisits returns visits with unclear answers. From each answer the page must conclude
// whether the payment was made, was not made, or may have been made.
func doubtVisits(*testing.T) []visit {
	steps := func(texts ...string) args { return args{"steps": texts} }
	overloaded := answerWithError(503, 0, "overloaded", "false", true)
	// An offer together with a receipt means that the payment was made, and that its answer is
	// no longer kept.
	usedBefore := keepReceiptThen(removeSignature)
	const lost, unknown = "Connection lost", "An earlier request with this signature may have been paid."
	refused := visit{
		name: "lost, then refused by the chain", script: "noDoubt", path: wwwPath, args: steps(lost, "The payment was not accepted"),
		plan: []step{dropRequest}, signatures: 2, settlements: 1, prepare: func(s *scene) { s.books.Plan("", x402test.Refuse) },
	}
	return []visit{
		payingVisit("402 in doubt", "inDoubt", wwwPath, 3).withPlan(steps(lost, unknown), dropAnswer, removeSignature),
		payingVisit("402 in doubt that an answer did not end", "inDoubt", wwwPath, 4).
			withPlan(steps(lost, "Payment not confirmed yet", unknown), dropAnswer, overloaded, removeSignature),
		payingVisit("404 in doubt", "inDoubt", wwwPath, 3).
			withPlan(steps(lost, "Your payment may or may not have arrived."), dropAnswer, answerWithError(404, 0, "unknown_path", "false", false)),
		refused,
		payingVisit("402 that says paid", "noDoubt", wwwPath, 2).withPlan(steps(lost, "An earlier one was, and its answer is not kept any longer."), dropAnswer, usedBefore),
		{
			name: "not charged, then 402", script: "noDoubt", path: wwwPath, args: steps("Not charged yet", "The payment was not accepted"),
			plan: []step{overloaded, removeSignature}, signatures: 2,
		},
		{name: "not charged, then forgotten", script: "forgetUnpaid", path: wwwPath, plan: []step{overloaded}, signatures: 1},
	}
}

// answerWithNewOffer answers with an offer that has the same terms but different extensions,
// as happens after a deployment.
func answerWithNewOffer(r *testbed.Relayed) {
	r.Request.Header.Del(x402.HeaderSignature)
	answer := r.Answer()
	offer := testbed.Must(x402test.Reply{Header: answer.Header()}.Required())
	offer.Extensions = map[string]json.RawMessage{"other": json.RawMessage("{}")}
	answer.Header().Set(x402.HeaderRequired, testbed.Must(x402.EncodeHeader(offer)))
	r.Send(answer, answer.Body.Len())
}

// tabVisits returns visits in which tabs of one browser must know of each other's payments.
func tabVisits(*testing.T) []visit {
	overloaded := answerWithError(503, 0, "overloaded", "false", true)
	const day, month = 24, 31 * 24 // hours
	const before = 1.0 / 6         // in hours; longer than a visit takes, even on a slow machine
	signedFor, paidFor := "You have signed a payment for this.", "You have paid for this."
	unpaid := visit{name: "unpaid for certain, and a day later", script: "aged", path: wwwPath, signatures: 1, plan: []step{overloaded}}
	unpaid.args = args{"comes": "Not charged yet", "offers": signedFor, "until": 1, "from": day}
	refused := payingVisit("refused in one tab, another at the wallet", "refusedElsewhere", wwwPath, 2).withPlan(nil, removeSignature)
	refused.signaturesMayDiffer, refused.questions = true, 2 // one purchase in each tab
	anew := payingVisit("forgotten in one tab and paid anew, answered in another", "paidAnewMeanwhile", wwwPath, 3).withPlan(args{"hears": true}, dropAnswer)
	anew.signaturesMayDiffer, anew.questions = true, 2
	deaf := anew.withPlan(args{"hears": false}, dropAnswer)
	deaf.name += ", which does not hear of it"
	return []visit{
		payingVisit("closed in doubt, opened in another tab", "closed", wwwPath, 2).withPlan(args{"sending": false, "browser": false}, dropAnswer),
		payingVisit("closed in doubt, opened in another browser run", "closed", wwwPath, 2).withPlan(args{"sending": false, "browser": true}, dropAnswer),
		payingVisit("closed in doubt and not paid, opened in another tab", "closed", wwwPath, 2).withPlan(args{"sending": false, "browser": false}, dropRequest),
		payingVisit("closed while sending, opened in another tab", "closed", wwwPath, 1).withPlan(args{"sending": true, "browser": false}),
		payingVisit("answered, and a day later", "aged", wwwPath, 1).withPlan(args{"comes": "", "offers": paidFor, "until": day - before, "from": day}),
		payingVisit("in doubt, and a month later", "aged", wwwPath, 1).
			withPlan(args{"comes": "Connection lost", "offers": signedFor, "until": month - before, "from": month}, dropAnswer),
		payingVisit("in doubt, answered days later", "answeredLate", wwwPath, 2).withPlan(args{"replayed": false}, dropRequest),
		payingVisit("in doubt, replayed days later", "answeredLate", wwwPath, 2).withPlan(args{"replayed": true}, dropAnswer),
		unpaid,
		payingVisit("two tabs at the sign button", "twoAtTheButton", wwwPath, 2).withPlan(args{"asked": false}),
		payingVisit("two tabs, one of them at the wallet", "twoAtTheButton", wwwPath, 2).withPlan(args{"asked": true}),
		payingVisit("forgotten in one tab", "forgotten", wwwPath, 1).withPlan(args{"storage": "on"}, dropAnswer),
		payingVisit("forgotten in one tab, storage off", "forgotten", wwwPath, 1).withPlan(args{"storage": "off"}, dropAnswer),
		payingVisit("forgotten in one tab, storage full", "forgotten", wwwPath, 1).withPlan(args{"storage": "full"}, dropAnswer),
		payingVisit("forgotten in one tab, answered in another", "forgottenMeanwhile", wwwPath, 1),
		anew, deaf,
		payingVisit("answered in one tab, lost in another", "answeredElsewhere", wwwPath, 2).withPlan(nil, pass, dropRequest),
		payingVisit("lost in one tab, overloaded in another", "doubtElsewhere", wwwPath, 3).withPlan(nil, dropAnswer, overloaded),
		refused,
		payingVisit("no storage at all, two tabs", "noStorageAtAll", wwwPath, 2).withPlan(nil, dropAnswer),
		payingVisit("hostile storage", "hostileStorage", wwwPath, 2).withPlan(nil, dropAnswer),
		payingVisit("many addresses in doubt", "otherAddresses", wwwPath, 1).withPlan(nil, dropAnswer),
	}
}

func receiptVisits(t *testing.T) []visit {
	says := func(name, text, without string, steps ...step) visit {
		return payingVisit(name, "receiptSays", wwwPath, 1).withPlan(args{"says": text, "without": without}, steps...)
	}
	const (
		not       = "Invalid: the receipt does not match this answer."
		noKeys    = "Not checked: the keys of this service cannot be read."
		noEd25519 = "Not checked: this browser has no Ed25519."
	)
	return []visit{
		payingVisit("the receipt is kept", "receiptKept", wwwPath, 2),
		says("it holds", " signed this answer.", ""),
		says("a changed byte", not, "", changeAnswer(nil, func(b []byte) []byte { return bytes.Replace(b, []byte("192.0.2.10"), []byte("192.0.2.11"), 1) })),
		says("an answer to another question", not, "", changeQuestion("domain=www.example.com", "domain=mail.example.com")),
		says("white space", not, "", changeAnswer(nil, func(b []byte) []byte { return append(b, ' ') })),
		says("another signature", not, "", changeAnswer(replaceReceipt(forgeSignature), nil)),
		says("another transaction", not, "", changeAnswer(func(r *x402.SettleResponse) { r.Transaction = r.Transaction[:60] + "000000" }, nil)),
		says("another payer", not, "", changeAnswer(func(r *x402.SettleResponse) { r.Payer = testbed.LocalTerms(t).PayTo }, nil)),
		says("no JWS", "The receipt cannot be read.", "", changeAnswer(replaceReceipt(func(string) string { return "<b>" }), nil)),
		says("a key that is not published", "Invalid: no key of this service signed the receipt.", "", changeAnswer(replaceReceipt(func(jws string) string {
			return "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6eCN5In0" + jws[strings.Index(jws, "."):]
		}), nil)),
		says("no receipt", "This answer is not signed.", "", changeAnswer(func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil)),
		says("a browser without Ed25519", noEd25519, "Ed25519"),
		says("a browser without WebCrypto", noEd25519, "crypto"),
		says("no keys", noKeys, "keys"),
		says("no network", noKeys, "network"),
	}
}
