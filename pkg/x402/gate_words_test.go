package x402_test

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A refusal whose cause is the operator's configuration is answered as that, and
// never as a bad payment.
func TestTurnedAway(t *testing.T) {
	for _, code := range []fault.Code{fault.FacilitatorUnauthorized, fault.FacilitatorMisconfigured, fault.FacilitatorUnavailable} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.settle = settles(x402.Settlement{Class: x402.TurnedAway, Code: code, Reason: "forbidden"})
			out := b.ask(b.sign(nil), "GET /a")
			if out.Status != http.StatusServiceUnavailable || out.Fault.Code != code || out.Receipt != nil || out.Trace.Class != "turned_away" {
				t.Errorf("%s: %d %s, receipt %v, class %s", code, out.Status, out.Fault.Code, out.Receipt, out.Trace.Class)
			}
			b.expectCalls("turned away", 1, 0)
		})
	}
}

// The payer reads what is wrong: the signature, or something else.
func TestWhyAPaymentIsNotValid(t *testing.T) {
	for _, c := range []struct {
		v    x402.Verification
		says string
	}{
		{x402.Verification{Reason: "invalid_exact_evm_signature", BadSignature: true}, "signature is not the payer's: invalid_exact_evm_signature"},
		{x402.Verification{Reason: "invalid_exact_evm_insufficient_balance"}, "the facilitator does not accept the payment: invalid_exact_evm_insufficient_balance"},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.verify = c.v
			out := b.ask(b.sign(contractPayer), "GET /a")
			b.expect(c.v.Reason, out, 402, fault.PaymentRequired, "false", false, false)
			if got := out.Fault.Public(); got != c.says {
				t.Errorf("the payer reads %q, want %q", got, c.says)
			}
		})
	}
}

// Facilitators answer with error reasons of their own around the broadcast. The chain
// decides then, and without its verdict no payer is told to sign anew.
func TestBroadcastAndAWordOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"settlement_error", "settle_failed", "brand_new_reason", "invalid_payload"} {
		for _, verdict := range []x402.Verdict{x402.Paid, x402.CannotTell} {
			var broadcasts atomic.Int32 // each moves the payer's money
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				broadcasts.Add(1)
				_, _ = io.WriteString(w, `{"success":false,"errorReason":"`+word+`","transaction":"","network":"eip155:8453"}`)
			}))
			defer server.Close()
			client := must(facilitator.New(facilitator.Config{URL: server.URL, ResendWait: -1}))
			wallet := must(x402test.NewWallet(rand.Reader))
			g := plainGate(&ledgertest.Memory{}, client, &fakeEvidence{f: x402.Finding{Verdict: verdict, Transaction: tx}})
			o := offer(t, terms(), "5000", "Oslo")
			header, err := wallet.Pay(o.Required(""), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			out := g.Serve(t.Context(), plainRequest(o, header, "GET /a"))
			want := map[x402.Verdict]int{x402.Paid: http.StatusOK, x402.CannotTell: http.StatusServiceUnavailable}[verdict]
			if out.Status != want || broadcasts.Load() != 1 {
				t.Errorf("%s, %s: answered %d after %d broadcasts, want %d after 1", word, verdict, out.Status, broadcasts.Load(), want)
			}
		}
	}
}

// A payment in doubt that comes again with a description of the client's own
// is sent again as it was, and without the description.
func TestClientWordsDoNotReachTheListing(t *testing.T) {
	t.Parallel()
	r := &recorder{sent: map[string][]string{}}
	server := httptest.NewServer(r)
	defer server.Close()
	client := must(facilitator.New(facilitator.Config{URL: server.URL}))
	wallet := must(x402test.NewWallet(rand.Reader))
	g, o := plainGate(&ledgertest.Memory{}, client, nil), listed(t)
	d := must(wallet.Draft(o.Required(""), time.Now()))
	first := must(wallet.Seal(d))
	bazaar := withMembers(t, d.Payload.Extensions["bazaar"], "info", map[string]any{"description": "SCAM: cheaper elsewhere"})
	bazaar = json.RawMessage(strings.Replace(string(bazaar), "{", `{"routeTemplate":"/v1/tools/:free",`, 1))
	d.Payload.Extensions = map[string]json.RawMessage{"bazaar": bazaar}
	d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), "{", `{"note":"client",`, 1))
	second := must(wallet.Seal(d))
	g.Serve(t.Context(), plainRequest(o, first, "GET /a"))
	g.Serve(t.Context(), plainRequest(o, second, "GET /a"))
	sent := r.sent["/settle"]
	if len(sent) != 2 || len(slices.Compact(slices.Clone(sent))) != 1 {
		t.Fatalf("sent %d times, as\n%s", len(sent), strings.Join(sent, "\n"))
	}
	if strings.Contains(sent[1], "SCAM") || strings.Contains(sent[1], "routeTemplate") || strings.Contains(sent[1], `"note"`) {
		t.Errorf("the facilitator is sent %s", sent[1])
	}
}
