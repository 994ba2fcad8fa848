package browser

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// moneyScenarios are the ways to a second payment, none of which is one.
func moneyScenarios() []scenario {
	by := func(how string) map[string]any { return map[string]any{"by": how} }
	odd := func(short, last string) map[string]any { return map[string]any{"short": short, "last": last} }
	clock := paysOnce("a clock that is wrong", "clockOff", wwwPath, 2)
	clock.several = true
	return append([]scenario{
		paysOnce("a slow chain while signing", "eventWhileSigning", wwwPath, 1),
		{name: "two changes in a row", script: "changesInARow", path: wwwPath},
		paysOnce("the chain changes while signing", "chainWhileSigning", wwwPath, 1),
		paysOnce("an old copy of the page signs", "historyCopy", wwwPath, 2).with(by("sign"), cutAfter),
		paysOnce("an old copy of the page is shown", "historyCopy", wwwPath, 2).with(by("pageshow"), cutAfter),
		paysOnce("several tabs", "tabs", wwwPath, 2).with(nil, cutAfter),
		paysOnce("another address in doubt", "otherAddress", wwwPath, 2).with(nil, cutAfter),
		paysOnce("storage off", "storageOff", wwwPath, 2).with(nil, cutAfter),
		{name: "an offer that changed", script: "newTerms", path: wwwPath, steps: []step{reoffers}, signatures: 1},
		paysOnce("a price that changed in doubt", "newPrice", wwwPath, 2).with(nil, cutBefore),
		clock,
		paysOnce("an odd wallet, compact signatures", "oddWallet", wwwPath, 1).with(odd("compact", "1b")),
		paysOnce("an odd wallet, compact odd signatures", "oddWallet", wwwPath, 1).with(odd("compact", "1c")),
		paysOnce("an odd wallet, low signatures", "oddWallet", wwwPath, 1).with(odd("low", "1b")),
		paysOnce("an odd wallet, low odd signatures", "oddWallet", wwwPath, 1).with(odd("low", "1c")),
	}, doubtScenarios()...)
}

// doubtScenarios are answers after which it is not known, or known, whether a
// signature is paid.
func doubtScenarios() []scenario {
	steps := func(texts ...string) map[string]any { return map[string]any{"steps": texts} }
	overloaded := fails(503, 0, "overloaded", "The concurrency cap is reached.", "false", true)
	const lost, unknown = "The connection was lost", "It is not known whether an earlier request with this signature was paid."
	refused := scenario{
		name: "lost, then refused by the chain", script: "noDoubt", path: wwwPath, args: steps(lost, "The payment was not accepted"),
		steps: []step{cutBefore}, signatures: 2, settles: 1, before: func(w *world) { w.books.plan(x402test.Refuse) },
	}
	return []scenario{
		paysOnce("402 in doubt", "inDoubt", wwwPath, 3).with(steps(lost, unknown), cutAfter, stripped),
		paysOnce("402 in doubt that an answer did not end", "inDoubt", wwwPath, 4).
			with(steps(lost, "Not known yet whether it is paid (overloaded)", unknown), cutAfter, overloaded, stripped),
		paysOnce("404 in doubt", "inDoubt", wwwPath, 3).
			with(steps(lost, "Whether it is paid is not known."), cutAfter, fails(404, 0, "unknown_path", "There is nothing at this path.", "false", false)),
		refused,
		paysOnce("402 that says paid", "noDoubt", wwwPath, 2).with(steps(lost, "An earlier one was, and its answer is not kept any longer."), cutAfter, usedBefore),
		{
			name: "not charged, then 402", script: "noDoubt", path: wwwPath, args: steps("Not charged yet (overloaded)", "The payment was not accepted"),
			steps: []step{overloaded, stripped}, signatures: 2,
		},
		{name: "not charged, then forgotten", script: "forgetUnpaid", path: wwwPath, steps: []step{overloaded}, signatures: 1},
	}
}

// stripped loses the signature on the way, as an intermediary does that takes
// the header away: the service answers its offer.
func stripped(p *proxy, w http.ResponseWriter, r *http.Request) {
	r.Header.Del(x402.HeaderSignature)
	p.forward.ServeHTTP(w, r)
}

// usedBefore answers as for a payment whose answer is not kept any longer: the
// offer, with the receipt.
func usedBefore(p *proxy, w http.ResponseWriter, r *http.Request) {
	whole := httptest.NewRecorder()
	p.forward.ServeHTTP(whole, r)
	w.Header().Set(x402.HeaderResponse, whole.Header().Get(x402.HeaderResponse))
	stripped(p, w, r)
}

// reoffers answers an offer whose terms are the same and whose extensions are
// not, as after a deployment.
func reoffers(p *proxy, w http.ResponseWriter, r *http.Request) {
	r.Header.Del(x402.HeaderSignature)
	whole := httptest.NewRecorder()
	p.forward.ServeHTTP(whole, r)
	raw, err := base64.StdEncoding.DecodeString(whole.Header().Get(x402.HeaderRequired))
	if err != nil {
		panic(err)
	}
	var offer map[string]json.RawMessage
	if err := json.Unmarshal(raw, &offer); err != nil {
		panic(err)
	}
	offer["extensions"] = json.RawMessage(`{"other":{}}`)
	if raw, err = json.Marshal(offer); err != nil {
		panic(err)
	}
	for name, values := range whole.Header() {
		w.Header()[name] = values
	}
	w.Header().Set(x402.HeaderRequired, base64.StdEncoding.EncodeToString(raw))
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes())
}

func TestMoney(t *testing.T) { playAll(t, moneyScenarios()) }
