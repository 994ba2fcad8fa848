package clients

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// moneyVisits are the ways to a second payment, none of which is one.
func moneyVisits(*testing.T) []visit {
	by := func(how string) map[string]any { return map[string]any{"by": how} }
	odd := func(short, last string) map[string]any { return map[string]any{"short": short, "last": last} }
	clock := pays("a clock that is wrong", "clockOff", wwwPath, 2)
	clock.several = true
	return append([]visit{
		pays("a slow chain while signing", "eventWhileSigning", wwwPath, 1),
		{name: "two changes in a row", script: "changesInARow", path: wwwPath},
		pays("the chain changes while signing", "chainWhileSigning", wwwPath, 1),
		pays("an old copy of the page signs", "historyCopy", wwwPath, 2).with(by("sign"), cutAfter),
		pays("an old copy of the page is shown", "historyCopy", wwwPath, 2).with(by("pageshow"), cutAfter),
		pays("several tabs", "tabs", wwwPath, 2).with(nil, cutAfter),
		pays("another address in doubt", "otherAddress", wwwPath, 2).with(nil, cutAfter),
		pays("storage off", "storageOff", wwwPath, 2).with(nil, cutAfter),
		{name: "an offer that changed", script: "newTerms", path: wwwPath, plan: []step{reoffers}, signatures: 1},
		pays("a price that changed in doubt", "newPrice", wwwPath, 2).with(nil, cutBefore),
		clock,
		pays("an odd wallet, compact signatures", "oddWallet", wwwPath, 1).with(odd("compact", "1b")),
		pays("an odd wallet, compact odd signatures", "oddWallet", wwwPath, 1).with(odd("compact", "1c")),
		pays("an odd wallet, low signatures", "oddWallet", wwwPath, 1).with(odd("low", "1b")),
		pays("an odd wallet, low odd signatures", "oddWallet", wwwPath, 1).with(odd("low", "1c")),
	}, doubtVisits()...)
}

// doubtVisits are answers after which it is not known, or known, whether a
// signature is paid.
func doubtVisits() []visit {
	steps := func(texts ...string) map[string]any { return map[string]any{"steps": texts} }
	overloaded := fails(503, 0, "overloaded", "false", true)
	const lost, unknown = "The connection was lost", "It is not known whether an earlier request with this signature was paid."
	refused := visit{
		name: "lost, then refused by the chain", script: "noDoubt", path: wwwPath, args: steps(lost, "The payment was not accepted"),
		plan: []step{cutBefore}, signatures: 2, settles: 1, before: func(s *scene) { s.books.plan(x402test.Refuse) },
	}
	return []visit{
		pays("402 in doubt", "inDoubt", wwwPath, 3).with(steps(lost, unknown), cutAfter, stripped),
		pays("402 in doubt that an answer did not end", "inDoubt", wwwPath, 4).
			with(steps(lost, "Not known yet whether it is paid (overloaded)", unknown), cutAfter, overloaded, stripped),
		pays("404 in doubt", "inDoubt", wwwPath, 3).
			with(steps(lost, "Whether it is paid is not known."), cutAfter, fails(404, 0, "unknown_path", "false", false)),
		refused,
		pays("402 that says paid", "noDoubt", wwwPath, 2).with(steps(lost, "An earlier one was, and its answer is not kept any longer."), cutAfter, usedBefore),
		{
			name: "not charged, then 402", script: "noDoubt", path: wwwPath, args: steps("Not charged yet (overloaded)", "The payment was not accepted"),
			plan: []step{overloaded, stripped}, signatures: 2,
		},
		{name: "not charged, then forgotten", script: "forgetUnpaid", path: wwwPath, plan: []step{overloaded}, signatures: 1},
	}
}

// usedBefore answers as for a payment whose answer is not kept any longer: the
// offer, with the receipt.
func usedBefore(g *gateway, w http.ResponseWriter, r *http.Request) { settledThen(stripped)(g, w, r) }

// reoffers answers an offer whose terms are the same and whose extensions are
// not, as after a deployment.
func reoffers(g *gateway, w http.ResponseWriter, r *http.Request) {
	r.Header.Del(x402.HeaderSignature)
	answer := g.whole(r)
	offer, err := (x402test.Reply{Header: answer.Header()}).Required()
	if err != nil {
		panic(err)
	}
	offer.Extensions = map[string]json.RawMessage{"other": json.RawMessage("{}")}
	header, err := x402.EncodeHeader(offer)
	if err != nil {
		panic(err)
	}
	answer.Header().Set(x402.HeaderRequired, header)
	send(w, answer, answer.Body.Bytes(), answer.Body.Bytes())
}
