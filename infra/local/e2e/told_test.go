package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// told is one request that the facilitator got.
type told struct {
	path string
	body []byte
}

// call is the body of /settle and /verify, every member of it.
type call struct {
	X402Version    int `json:"x402Version"`
	PaymentPayload struct {
		X402Version int                        `json:"x402Version"`
		Resource    *x402.Resource             `json:"resource"`
		Accepted    json.RawMessage            `json:"accepted"`
		Payload     x402.ExactPayload          `json:"payload"`
		Extensions  map[string]json.RawMessage `json:"extensions"`
	} `json:"paymentPayload"`
	PaymentRequirements x402.Requirements `json:"paymentRequirements"`
}

// checkTold holds what the facilitator was told about the run's payments to
// what was offered and signed: our own description of what is sold, our own
// extensions without the payment's name and the retry token, our own terms. A payment that it is
// told of again is told in the same bytes. least is how often it was asked to
// settle, at least.
func (r *run) checkTold(least int) {
	r.Helper()
	r.lab.mu.Lock()
	all := append([]told{}, r.lab.told[r.payer]...)
	r.lab.mu.Unlock()
	settles := 0
	first := map[string][]byte{} // path and signature -> body
	for _, t := range all {
		var c call
		if err := strictly(t.body, &c); err != nil {
			r.Errorf("%s: %v: %s", t.path, err, t.body)
			continue
		}
		if t.path == "/settle" {
			settles++
		}
		key := t.path + c.PaymentPayload.Payload.Signature
		if first[key] == nil {
			first[key] = t.body
			r.checkCall(t.path, c)
		} else if !bytes.Equal(first[key], t.body) {
			r.Errorf("%s: the same payment in other bytes:\n%s\n%s", t.path, first[key], t.body)
		}
	}
	if settles < least {
		r.Errorf("the facilitator got %d calls to /settle, want %d", settles, least)
	}
}

// checkCall holds one call to the payment that it is about.
func (r *run) checkCall(path string, c call) {
	r.Helper()
	offer, ok := r.paymentOf(c.PaymentPayload.Payload)
	if !ok {
		r.Errorf("%s: nobody has signed %+v", path, c.PaymentPayload.Payload)
		return
	}
	op, _ := opOf(strings.TrimPrefix(offer.Resource.URL, r.d.origin))
	p := c.PaymentPayload
	is(r, path+": x402Version", [2]int{c.X402Version, p.X402Version}, [2]int{2, 2})
	if p.Resource == nil || p.Resource.URL != r.d.origin+op.Path || p.Resource.MimeType != "application/json" || p.Resource.Description == "" {
		r.Errorf("%s: what is sold is %+v", path, p.Resource)
	}
	if d := cmp.Diff(&offer.Resource, p.Resource); d != "" {
		r.Errorf("%s: resource (-offered +told): %s", path, d)
	}
	if d := cmp.Diff(r.lab.terms.Requirements(op.Amount), c.PaymentRequirements); d != "" {
		r.Errorf("%s: paymentRequirements: %s", path, d)
	}
	ours := maps.Clone(offer.Extensions)
	delete(ours, x402.ExtensionIdentifier)
	delete(ours, x402.ExtensionToken)
	if d := cmp.Diff(asJSON(r, ours), asJSON(r, p.Extensions)); d != "" {
		r.Errorf("%s: extensions (-offered +told): %s", path, d)
	}
	if d := cmp.Diff(asJSON(r, offer.Accepts[0]), asJSON(r, p.Accepted)); d != "" {
		r.Errorf("%s: accepted (-offered +told): %s", path, d)
	}
}

// paymentOf finds the offer that a payment of the run answers.
func (r *run) paymentOf(p x402.ExactPayload) (offer x402.PaymentRequired, ok bool) {
	for header, offer := range r.offers {
		var sent x402.Payload
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(header, "="))
		if err != nil || json.Unmarshal(raw, &sent) != nil {
			continue
		}
		if strings.EqualFold(fmt.Sprint(sent.Payload), fmt.Sprint(p)) {
			return offer, true
		}
	}
	return offer, false
}

// asJSON is a value as JSON has it.
func asJSON(r *run, v any) any {
	r.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		r.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		r.Fatal(err)
	}
	return out
}

// toldCases are payers who say something else about what they buy, and
// facilitators that say something about who pays.
func toldCases(op catalog.Operation) []scenario {
	u := op.ExampleURL("")
	edited := func(name string, edit func(*x402test.Draft)) scenario {
		return scenario{name: "told: " + name, calls: 1, transfers: 1, steps: []step{payWith(u, edit, nil, result("")), again(result("").replayed())}}
	}
	return []scenario{
		edited("the payer's own resource", func(d *x402test.Draft) {
			d.Payload.Resource = &x402.Resource{URL: "https://elsewhere.example/", Description: "free money", MimeType: "text/html"}
		}),
		edited("no resource", func(d *x402test.Draft) { d.Payload.Resource = nil }),
		edited("an extension of the payer's own", func(d *x402test.Draft) { d.Payload.Extensions["mine"] = json.RawMessage(`{"info":{}}`) }),
		{name: "told: no echo", calls: 1, transfers: 1, steps: []step{
			payWith(u, func(d *x402test.Draft) { d.Payload.Extensions = nil }, nil, result("")), again(refused("authorization already used")),
		}},
		edited("half an echo", func(d *x402test.Draft) { delete(d.Payload.Extensions, "bazaar") }),
		{name: "told: by a contract wallet", calls: 1, transfers: 1, steps: []step{
			payWith(u, func(d *x402test.Draft) { d.Payload.Resource = nil }, contractWallet, result("")), happens(wasVerified),
		}},
		{name: "the facilitator quotes the payment", steps: []step{
			signed(u), happens(quoted), again(fails(fault.SettlementUncertain)), again(fails(fault.SettlementUncertain)),
		}},
		{name: "the facilitator quotes a contract's signature", steps: []step{
			signed(u), happens(quoted), happens(func(r *run) {
				offer := r.offers[r.header]
				r.header = contractWallet(r.header)
				r.offers[r.header] = offer
				r.lab.secret(r.header)
			}), again(fails(fault.FacilitatorUnavailable)),
		}},
	}
}

// wasVerified: the facilitator judged the signature before it settled.
func wasVerified(r *run) {
	r.lab.mu.Lock()
	defer r.lab.mu.Unlock()
	var paths []string
	for _, t := range r.lab.told[r.payer] {
		paths = append(paths, t.path)
	}
	if d := cmp.Diff([]string{"/verify", "/settle"}, paths); d != "" {
		r.Errorf("calls: %s", d)
	}
}

// quoted has the facilitator quote the payer's payments from now on.
func quoted(r *run) {
	r.lab.mu.Lock()
	defer r.lab.mu.Unlock()
	r.lab.parrots[r.payer] = true
}

// quote answers with the signature wherever there is room for it, as some
// facilitators do with the call that they made.
func quote(w http.ResponseWriter, path string, body []byte) {
	var c call
	if err := json.Unmarshal(body, &c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	signature := c.PaymentPayload.Payload.Signature
	digits := strings.TrimPrefix(signature, "0x")
	note, err := json.Marshal(map[string]any{"bazaar": map[string]string{
		"status": "rejected", "rejectedReason": digits[:64], "reason": strings.ToUpper(digits[64:128]), "code": signature,
	}})
	if err != nil {
		panic(err)
	}
	w.Header().Set("EXTENSION-RESPONSES", base64.StdEncoding.EncodeToString(note))
	answer := map[string]any{
		"success": false, "transaction": "", "network": c.PaymentRequirements.Network,
		"errorReason": "reverted: " + signature, "errorMessage": "r=0x" + strings.ToUpper(digits[:64]) + " s=" + digits[64:128] + " of " + signature,
	}
	status := http.StatusInternalServerError
	if path == "/verify" {
		status, answer = http.StatusOK, map[string]any{"isValid": false, "invalidReason": "isValidSignature(" + signature + ") " + digits[:64]}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the service may be gone
}
