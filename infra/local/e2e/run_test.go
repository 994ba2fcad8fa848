package e2e

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// run is one payer with a new wallet, and what he is answered.
type run struct {
	testing.TB
	lab     *lab
	d       *deployment
	client  *http.Client
	wallet  *x402test.Wallet
	payer   string       // the wallet's account, lower case
	account x402.Address // that pays: the wallet's, or a contract
	id      string       // of the run
	name    string       // its lab name
	// moved is the hash of the transaction that paid, where it is not play money.
	moved func() string

	path    string // of the payment
	header  string // PAYMENT-SIGNATURE
	first   exchange
	answers int // results that were not replays
}

var runs atomic.Int64

// newRun is a payer whose settlements go as the script says, and then honestly.
func newRun(tb testing.TB, l *lab, d *deployment, client *http.Client, script ...x402test.Behaviour) *run {
	tb.Cleanup(client.CloseIdleConnections)
	r := &run{TB: tb, lab: l, d: d, client: client, id: fmt.Sprintf("run%d", runs.Add(1)), wallet: l.wallet(script...)}
	r.account, r.payer = r.wallet.Address(), r.wallet.Address().String()
	return r
}

// want is what an answer must be.
type want struct {
	code    fault.Code // of an error; payment_required of an offer
	status  int        // of what has no code
	message string     // part of the error's, or of the offer's reason
	charged string     // what an error says of it; "true" of a result
	replay  bool       // the stored answer, byte for byte
	receipt bool       // PAYMENT-RESPONSE is there
	blind   bool       // it names no transaction: nobody has told the service
	body    string     // of a result; empty is any
	gateway bool       // it is the gateway's own
}

func refused(reason string) want {
	return want{code: fault.PaymentRequired, message: reason, charged: "false"}
}

func unpaid() want { return refused("Payment required") }

// paidFor is an offer to who has paid with this authorization, or has tried to.
func paidFor(reason string) want { w := refused(reason); w.receipt = true; return w }

func fails(code fault.Code) want {
	w := want{code: code, charged: "false"}
	switch info, _ := catalog.CodeOf(code); info.Class {
	case fault.Answer, fault.Owed:
		w.charged, w.receipt = "true", true
	case fault.NoCharge:
		if !x402.ChargeOf(info).No {
			w.charged = "null"
		}
	}
	return w
}

// result is a 200 with exactly this body; empty stands for any that is described.
func result(body string) want {
	return want{status: http.StatusOK, charged: "true", receipt: true, body: body}
}

// afterPaying is the answer to who has paid, in the words of the ledger.
func (w want) afterPaying() want { w.charged, w.receipt = "true", true; return w }
func (w want) replayed() want    { w.replay = true; return w }

func (w want) of() int {
	if info, ok := catalog.CodeOf(w.code); ok {
		return info.Status
	}
	return w.status
}

// check holds an answer to a want, and to the OpenAPI description, and remembers it.
func (r *run) check(e exchange, w want) {
	is(r, "status", e.Status, w.of())
	if r.Failed() || w.gateway {
		return
	}
	code, charged, says := e.fault()
	if offer := w.code == fault.PaymentRequired; !offer || !r.d.stranger {
		is(r, "code", code, string(w.code))
		if w.code != "" && !offer {
			is(r, "charged", charged, w.charged)
		}
	}
	mentions(r, "the answer", says, w.message)
	is(r, x402.HeaderReplayed, e.Header.Get(x402.HeaderReplayed), map[bool]string{true: "true"}[w.replay])
	is(r, "has PAYMENT-RESPONSE", e.Header.Get(x402.HeaderResponse) != "", w.receipt)
	if w.body != "" {
		is(r, "body", string(e.Body), w.body)
	}
	if w.replay {
		is(r, "the replay", string(e.Body), string(r.first.Body))
		is(r, "its receipt", e.Header.Get(x402.HeaderResponse), r.first.Header.Get(x402.HeaderResponse))
	}
	if !r.d.stranger {
		checkDescribed(r, e)
		r.checkReceipt(e, w)
	}
	if w.charged == "true" && !w.replay {
		r.first = e
	}
	if w.code == "" && !w.replay {
		r.answers++
	}
	if r.Failed() {
		r.Log(e)
	}
}

// checkReceipt holds PAYMENT-RESPONSE to the payment. An answer that was paid for is
// signed for, byte by byte, by the key that is published.
func (r *run) checkReceipt(e exchange, w want) {
	if !w.receipt || w.code == fault.PaymentRequired {
		return
	}
	got, err := e.Receipt()
	hash := ""
	if list := r.lab.facilitator.Moved(r.payer); r.moved != nil {
		hash = r.moved()
	} else if len(list) > 0 && !w.blind {
		hash = list[0].Transaction
	}
	signed := got.Extensions.OfferReceipt.Info.Receipt.Signature
	got.Extensions = x402.ResponseExtensions{}
	wanted := x402.SettleResponse{Success: true, Transaction: hash, Network: r.lab.terms.Network, Payer: r.account.Checksum()}
	if d := cmp.Diff(wanted, got); d != "" || err != nil {
		r.Errorf("PAYMENT-RESPONSE: %v %s", err, d)
	}
	if info, _ := catalog.CodeOf(w.code); w.code != "" && info.Class != fault.Answer {
		is(r, "the receipt of what is no answer", signed, "")
		return
	}
	s, kid, err := receipt.Verify(signed, func(string) (ed25519.PublicKey, error) { return receipt.ParsePublic(receiptPublicKey) })
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(e.Body) || s.Transaction != hash || s.Payer != got.Payer {
		r.Errorf("receipt %+v by %s, %v", s, kid, err)
	}
}

func is[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

func mentions(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s lacks %q:\n%.2000s", what, part, text)
		}
	}
}

// booked holds the facilitator to what it did for the payer: calls to /settle, and
// transfers of the right value to the right payee.
func (r *run) booked(amount string, calls, transfers int) {
	moved := r.lab.facilitator.Moved(r.payer)
	if len(moved) > transfers {
		r.Error(testbed.Grave(fmt.Sprintf("money was moved %d times, want %d", len(moved), transfers)))
	}
	is(r, "calls to /settle", r.lab.facilitator.Asked(r.payer), calls)
	is(r, "transfers", len(moved), transfers)
	for _, t := range moved {
		is(r, "value", t.Value, amount)
		is(r, "payee", strings.EqualFold(t.Payee, r.lab.terms.PayTo), true)
	}
}

// lookUp is the question about the run's own lab name of a mode.
func (r *run) lookUp(mode string) string {
	r.name = r.id + "." + mode + strings.TrimSuffix(labDomain, ".")
	return lookUp(r.name, "A")
}

func lookUp(domain, typ string) string {
	return catalog.DNS().Path + "?domain=" + domain + "&type=" + typ
}

// answer is the result of the run's purchase.
func (r *run) answer() want {
	if r.d.stranger {
		return result(`{"city":"Oslo","weather":"fair"}`)
	}
	return result(answerTo(r.name))
}

func answerTo(name string) string {
	return `{"domain":"` + name + `","type":"A","rcode":"NOERROR","resolver":"127.0.0.1","ttl":30,"records":[{"address":"192.0.2.77"}]}`
}

// sign signs the offer of a path. edit may change it before it is signed, spoil what is signed.
func (r *run) sign(path string, edit func(*x402test.Draft), spoil func(string) string) {
	e := r.ask(http.MethodGet, path, nil)
	if r.moved == nil { // with two facilitators there is no duplicate window to offer
		r.check(e, unpaid())
	}
	required, err := e.Required()
	if err != nil {
		r.Fatal(err)
	}
	draft := must(r.wallet.Draft(required, time.Now()))
	if edit != nil {
		edit(&draft)
	}
	if r.header = must(r.wallet.Seal(draft)); spoil != nil {
		r.header = spoil(r.header)
	}
	r.lab.secret(r.header)
	r.path = path
}

// ask makes one request. Accept is application/json unless h says otherwise.
func (r *run) ask(method, path string, h header) exchange {
	e, err := r.d.send(r.Context(), r.client, method, path, h)
	if err != nil {
		r.Fatalf("%s %.200s: %v", method, path, err)
	}
	return e
}

// asks is ask for what costs nothing.
func (r *run) asks(method, path string, h header, w want) exchange {
	e := r.ask(method, path, h)
	r.check(e, w)
	return e
}

// pays sends the payment for its own path, and holds the answer to w.
func (r *run) pays(w want) exchange { return r.paysFor(r.path, w) }

func (r *run) paysFor(path string, w want) exchange {
	return r.asks(http.MethodGet, path, paidBy(r.header), w)
}

// buys signs the offer of a path and pays for it.
func (r *run) buys(path string, w want) exchange {
	r.sign(path, nil, nil)
	return r.pays(w)
}

// repeats sends the payment until enough says so of an answer, and waits as long as
// each asks for. It returns the last answer and those before.
func (r *run) repeats(wait func(time.Duration), enough func(exchange) bool) (last exchange, before []exchange) {
	for deadline := time.Now().Add(patience); ; {
		e := r.ask(http.MethodGet, r.path, paidBy(r.header))
		if enough(e) || time.Now().After(deadline) {
			return e, before
		}
		before = append(before, e)
		wait(e.RetryAfter())
	}
}

// eventually sends the payment until it is answered with w, as often as the answers
// allow. A refusal stands for a second.
func (r *run) eventually(w want) {
	e, _ := r.repeats(func(d time.Duration) { r.pause(max(d, 5*time.Millisecond)) }, func(e exchange) bool {
		return e.Status == w.of() || e.RetryAfter() == 0 && e.Status != http.StatusPaymentRequired
	})
	r.check(e, w)
}

// begin sends the payment along, and does not wait for the answer. What it returns waits.
func (r *run) begin(path string) (wait func() (exchange, error)) {
	d, signature, ended := r.d, r.header, make(chan struct{})
	var e exchange
	var err error
	go func() {
		defer close(ended)
		e, err = d.send(r.Context(), r.client, http.MethodGet, path, paidBy(signature))
	}()
	return func() (exchange, error) {
		<-ended
		return e, err
	}
}

func (r *run) pause(d time.Duration) {
	if err := pause(r.Context(), d); err != nil {
		r.Fatal(err)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
