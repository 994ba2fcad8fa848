package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
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

// exchange is a request and its answer.
type exchange struct {
	method, path string
	x402test.Reply
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %.200s: %d %.1000s", e.method, e.path, e.Status, e.Body)
}

// run is one payer with a new wallet, and the answers that the payer got.
type run struct {
	testing.TB
	lab             *lab
	deployment      *deployment
	client          *http.Client
	pace            *testbed.Pace
	wallet          *x402test.Wallet
	payer           string       // the wallet's account, lower case
	account         x402.Address // the account that pays: the wallet's, or a contract's
	signaturePrefix string       // what the contract's signatures begin with, in hexadecimal with 0x; empty if the wallet pays
	domain          string       // the domain that is looked up; no other run uses it
	// paymentTx returns the hash of the transaction that paid. If paymentTx is nil, the
	// payment is the payer's first transfer of play money.
	paymentTx func() string

	path          string // the path that the payment is for
	paymentHeader string // the value of the header PAYMENT-SIGNATURE, which carries the payment
	firstResult   exchange
	resultCount   int // the number of results that were not replays
}

var runs atomic.Int64

// newRun returns a payer whose client follows no redirect and decompresses nothing. A test
// therefore sees answers as they were sent.
func newRun(tb testing.TB, l *lab, d *deployment, pace *testbed.Pace) *run {
	client := &http.Client{
		Timeout:       2 * patience,
		Transport:     &http.Transport{MaxIdleConnsPerHost: largeCrowd, IdleConnTimeout: 5 * time.Second, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	tb.Cleanup(client.CloseIdleConnections)
	r := &run{TB: tb, lab: l, deployment: d, client: client, pace: pace, domain: fmt.Sprintf("run%d.example.com", runs.Add(1)), wallet: testbed.Must(x402test.NewWallet(rand.Reader))}
	r.account, r.payer = r.wallet.Address(), r.wallet.Address().String()
	return r
}

// wantAnswer describes an expected answer.
type wantAnswer struct {
	code       fault.Code // the code of an error; payment_required for an offer
	status     int        // the status of an answer without a code
	message    string     // a part of an error's message, or of an offer's reason
	charged    string     // the member "charged" of the error; "true" for a result
	isReplay   bool       // the answer is the stored one, byte for byte
	hasReceipt bool       // the answer has a PAYMENT-RESPONSE header
	body       string     // the body of a result; empty means any
}

func wantRefusal(reason string) wantAnswer {
	return wantAnswer{code: fault.PaymentRequired, message: reason, charged: "false"}
}

func wantError(code fault.Code, charged string) wantAnswer {
	return wantAnswer{code: code, charged: charged}
}

func (w wantAnswer) asReplay() wantAnswer { w.isReplay = true; return w }

// checkAnswer compares an answer with the expected one and with the OpenAPI description. If
// the payer was charged, checkAnswer keeps the answer, to compare replays with it. It also
// counts the results.
func (r *run) checkAnswer(e exchange, w wantAnswer) {
	if info, ok := catalog.CodeOf(w.code); ok {
		w.status = info.Status
	}
	checkEqual(r, "status", e.Status, w.status)
	if r.Failed() {
		return
	}
	reported := testbed.FaultOf(e.Reply)
	checkEqual(r, "code", reported.Code, string(w.code))
	if w.code != "" && w.code != fault.PaymentRequired {
		checkEqual(r, "charged", reported.Charged, w.charged)
	}
	checkContains(r, "the answer", reported.Message, w.message)
	checkEqual(r, x402.HeaderReplayed, e.Header.Get(x402.HeaderReplayed), map[bool]string{true: "true"}[w.isReplay])
	checkEqual(r, "has PAYMENT-RESPONSE", e.Header.Get(x402.HeaderResponse) != "", w.hasReceipt)
	if w.body != "" {
		checkEqual(r, "body", string(e.Body), w.body)
	}
	if w.isReplay {
		checkEqual(r, "the replay", string(e.Body), string(r.firstResult.Body))
		checkEqual(r, "its receipt", e.Header.Get(x402.HeaderResponse), r.firstResult.Header.Get(x402.HeaderResponse))
	}
	checkAgainstOpenAPI(r, e)
	r.checkReceipt(e, w)
	if w.charged == "true" && !w.isReplay {
		r.firstResult = e
	}
	if w.code == "" && w.hasReceipt && !w.isReplay {
		r.resultCount++
	}
	if r.Failed() {
		r.Log(e)
	}
}

// checkReceipt compares PAYMENT-RESPONSE with the payment. With a paid answer, the header must
// contain a receipt that covers the exact bytes of the answer and is signed by the published
// key. With an error, the header must contain no signed receipt.
func (r *run) checkReceipt(e exchange, w wantAnswer) {
	if !w.hasReceipt || w.code == fault.PaymentRequired {
		return
	}
	got, err := e.Receipt()
	hash := ""
	if list := r.lab.facilitator.Moved(r.payer); r.paymentTx != nil {
		hash = r.paymentTx()
	} else if len(list) > 0 {
		hash = list[0].Transaction
	}
	signed := got.Extensions.OfferReceipt.Info.Receipt.Signature
	got.Extensions = x402.ResponseExtensions{}
	wanted := x402.SettleResponse{Success: true, Transaction: hash, Network: r.lab.terms.Network, Payer: r.account.Checksum()}
	if d := cmp.Diff(wanted, got); d != "" || err != nil {
		r.Errorf("PAYMENT-RESPONSE: %v %s", err, d)
	}
	if w.code != "" {
		checkEqual(r, "the receipt of what is not an answer", signed, "")
		return
	}
	s, kid, err := receipt.Verify(signed, func(string) (ed25519.PublicKey, error) { return receipt.ParsePublic(receiptPublicKey) })
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(e.Body) || s.Transaction != hash || s.Payer != got.Payer {
		r.Errorf("receipt %+v by %s, %v", s, kid, err)
	}
}

func checkEqual[T comparable](tb testing.TB, what string, got, want T) {
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

func checkContains(tb testing.TB, what, text string, parts ...string) {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s lacks %q:\n%.2000s", what, part, text)
		}
	}
}

// checkSettlements checks how many calls to /settle the facilitator got, how many transfers it
// made, and that each transferred the price to the payee.
func (r *run) checkSettlements(calls, transfers int) {
	moved := r.lab.facilitator.Moved(r.payer)
	if len(moved) > transfers {
		r.Error(testbed.Grave(fmt.Sprintf("money was moved %d times, want %d", len(moved), transfers)))
	}
	checkEqual(r, "calls to /settle", r.lab.facilitator.Asked(r.payer), calls)
	checkEqual(r, "transfers", len(moved), transfers)
	for _, t := range moved {
		checkEqual(r, "value", t.Value, catalog.DNS().Amount)
		checkEqual(r, "payee", strings.EqualFold(t.Payee, r.lab.terms.PayTo), true)
	}
}

func lookUp(domain, typ string) string {
	return catalog.DNS().Path + "?domain=" + domain + "&type=" + typ
}

func answerTo(name string) string {
	return `{"domain":"` + name + `","type":"A","rcode":"NOERROR","resolver":"127.0.0.1","ttl":30,"records":[{"address":"192.0.2.77"}]}`
}

// wantResult returns the expected result of the run's purchase.
func (r *run) wantResult() wantAnswer {
	return wantAnswer{status: http.StatusOK, charged: "true", hasReceipt: true, body: answerTo(r.domain)}
}

// sign requests the offer of a path, and signs a payment for that offer.
func (r *run) sign(path string) {
	e := r.ask(http.MethodGet, path)
	if r.paymentTx == nil { // skipped on a real chain: there, the offer may lack the duplicate window that checkAnswer expects
		r.checkAnswer(e, wantRefusal("Payment required"))
	}
	required, err := e.Required()
	if err != nil {
		r.Fatal(err)
	}
	draft := testbed.Must(r.wallet.Draft(required, time.Now()))
	draft.Payload.Payload.Authorization.From = r.account.Checksum()
	if r.paymentHeader = testbed.Must(r.wallet.Seal(draft)); r.signaturePrefix != "" {
		p, _ := signedBy(r.paymentHeader)
		p.Payload.Signature = strings.Replace(p.Payload.Signature, "0x", r.signaturePrefix, 1)
		r.paymentHeader = testbed.Must(x402.EncodeHeader(p))
	}
	r.lab.secrets.Add(r.paymentHeader)
	r.path = path
}

// signedBy returns the payment in a header, and the signed transfer that this payment
// contains.
func signedBy(header string) (p x402.Payload, s testbed.SignedTransfer) {
	testbed.Check(json.Unmarshal(testbed.Must(base64.StdEncoding.DecodeString(header)), &p))
	s.Signature = testbed.Must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
	s.Authorization = p.Payload.Authorization
	return p, s
}

// try makes one request with testbed.Ask, and tells r.pace how long the request took.
func (r *run) try(method, path string, headers ...string) (exchange, error) {
	begun := time.Now()
	reply, err := testbed.Ask(r.Context(), r.client, method, r.deployment.base+path, headers...)
	r.pace.Took(time.Since(begun))
	return exchange{method, path, reply}, err
}

func (r *run) ask(method, path string, headers ...string) exchange {
	e, err := r.try(method, path, headers...)
	if err != nil {
		r.Fatalf("%s %.200s: %v", method, path, err)
	}
	return e
}

// askAndCheck makes one request and compares the answer with the expected one.
func (r *run) askAndCheck(w wantAnswer, method, path string, headers ...string) exchange {
	e := r.ask(method, path, headers...)
	r.checkAnswer(e, w)
	return e
}

// payAndCheck sends the payment to the path for which it was signed, and compares the answer
// with the expected one.
func (r *run) payAndCheck(w wantAnswer) exchange { return r.payForPath(r.path, w) }

func (r *run) payForPath(path string, w wantAnswer) exchange {
	return r.askAndCheck(w, http.MethodGet, path, x402.HeaderSignature, r.paymentHeader)
}

// buyAndCheck signs a payment for a path, sends it, and compares the answer with the expected
// one.
func (r *run) buyAndCheck(path string, w wantAnswer) exchange {
	r.sign(path)
	return r.payAndCheck(w)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
