package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestBundleOwes plays requests for a bundle whose first answer leaves pieces owed. The bundle
// must be looked up again, at intervals, until no piece is owed or no lookup is left.
// Meanwhile the payer must get the pieces that are available, with the same signature or with
// a new one. Each distinct answer must have exactly one receipt.
func TestBundleOwes(t *testing.T) {
	both, one := []string{"ssl", "whois"}, []string{"whois"}
	for name, steps := range map[string][]bundleStep{
		"less and less": {
			{lookupOwes: both, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: 9 * time.Second, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: time.Second, lookupOwes: one, body: "2", owed: one, runs: 2, lookups: 2},
			{wait: 10 * time.Second, newSignature: true, body: "3", runs: 3, lookups: 3},
			{wait: time.Hour, body: "3", runs: 3, lookups: 3},
		},
		"never better": {
			{lookupOwes: one, body: "1", owed: one, runs: 1, lookups: 1},
			{wait: time.Minute, lookupOwes: both, body: "1", owed: one, runs: 2, lookups: 2},
			{wait: time.Minute, lookupFails: true, body: "1", owed: one, runs: 3, lookups: 3},
			{wait: time.Minute, lookupOwes: one, body: "1", owed: one, runs: 4, lookups: 4},
			{wait: 10 * time.Minute, lookupOwes: one, body: "1", owed: one, runs: 5, lookups: 5},
			{wait: 10 * time.Minute, body: "1", owed: one, runs: 5, lookups: 5},
			{wait: 24*time.Hour - 23*time.Minute, body: "1", runs: 5, lookups: 5}, // a day after the first request, no piece is owed any more
		},
		"prevented": {
			{lookupOwes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: 9 * time.Second, lookupOwes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: time.Second, lookupOwes: one, prevented: true, body: "1", owed: one, runs: 2},
			{wait: 9 * time.Second, body: "1", owed: one, runs: 2},
			{wait: time.Second, body: "3", runs: 3, lookups: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				d := newBundle(t, b)
				for i, s := range steps {
					d.step(fmt.Sprint("step ", i), s)
				}
				b.expectCalls("in all", 1, int(b.runs.Load()))
			})
		})
	}
}

// bundleStep is one request for a bundle, and its expected outcome.
type bundleStep struct {
	wait         time.Duration // the pause before the request
	lookupOwes   []string      // the pieces that the lookup leaves owed, if it runs
	lookupFails  bool          // the whole lookup fails, if it runs
	prevented    bool          // the lookup tries no owed piece, because a pause after an earlier failure has not ended
	newSignature bool          // the request has a new signature
	body         string        // the expected body: the number of the run that made the answer
	owed         []string      // the pieces that the answer names as owed
	runs         int32         // number of runs so far
	lookups      int           // number of lookups so far that the ledger counts
}

// bundle is the purchase of a bundle, which a test plays step by step.
type bundle struct {
	*harness
	signer       *receiptSigner
	receipts     map[string]string // the receipt of each answer, by the body of the answer
	header       string            // the payment header with the first signature
	lastAnswered time.Time         // the time of the last answer that was not a replay
	playedStep   bundleStep        // the step that is being played
}

func newBundle(t *testing.T, b *harness) *bundle {
	t.Helper()
	d := &bundle{harness: b, signer: newReceiptSigner(t), receipts: map[string]string{}, header: b.sign(nil)}
	b.window, b.receipts = duplicateWindow, d.signer
	b.keys = []string{"bundle"}
	b.reply = func(n int32) (x402.Reply, error) {
		if d.playedStep.lookupFails {
			return x402.Reply{}, lookup.Fault(lookup.HostIntelTimeout, nil)
		}
		return x402.Reply{Body: []byte{'0' + byte(n)}, Owed: d.playedStep.lookupOwes, Prevented: d.playedStep.prevented}, nil
	}
	return d
}

func (d *bundle) step(what string, s bundleStep) {
	d.t.Helper()
	time.Sleep(s.wait)
	d.playedStep = s
	sent := d.header
	if s.newSignature {
		sent = d.sign(nil)
	}
	out := d.ask(sent, "GET /bundle")
	d.expect(what, out, answered())
	d.checkReceipt(what, s, out)
	if !out.Replayed {
		d.lastAnswered = time.Now()
	} else if !out.Answered.Equal(d.lastAnswered) {
		d.t.Errorf("%s: answered %s, want %s", what, out.Answered, d.lastAnswered)
	}
	r := d.storedPayment(d.header)
	if string(out.Body) != s.body || !slices.Equal(out.Owed, s.owed) || d.runs.Load() != s.runs || r.Lookups != s.lookups {
		d.t.Errorf("%s: body %s, owed %v, %d runs, %d lookups", what, out.Body, out.Owed, d.runs.Load(), r.Lookups)
	}
	if r.Owed() || !r.LeaseUntil.IsZero() {
		d.t.Errorf("%s: a debt, or a lease: %+v", what, r)
	}
}

// checkReceipt checks that an answer has the same receipt each time it is given.
func (d *bundle) checkReceipt(what string, s bundleStep, out x402.Outcome) {
	d.t.Helper()
	jws := d.signer.checkReceipt(d.t, what, out)
	before, known := d.receipts[s.body]
	if known && jws != before {
		d.t.Errorf("%s: the same answer with another receipt", what)
	}
	d.receipts[s.body] = jws
}

// TestPreventedLookupIsNotCounted plays lookups that try nothing, because the pause after an
// earlier failure on our side has not ended. The ledger must count none of them.
func TestPreventedLookupIsNotCounted(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) {
			return nil, lookup.Fault(lookup.BootstrapUnavailable, nil).Prevented()
		}
		h := b.sign(nil)
		for range 10 {
			b.expect("prevented", b.ask(h, "GET /a"), expected{status: 503, code: lookup.BootstrapUnavailable, charged: "true", retryable: true, receipt: true})
			time.Sleep(time.Second)
		}
		if r := b.storedPayment(h); r.Lookups != 0 || !r.LeaseUntil.IsZero() {
			t.Errorf("%+v", r)
		}
	})
}

// TestSale plays one purchase whose job runs three times. After the first run nothing can be
// written, as if its process had been killed. The second run gives no answer. The third run is
// for a request with a new payment of another amount. Each run must learn for which payment it
// runs, which is always the first payment, and whether this payment had an earlier run.
func TestSale(t *testing.T) {
	stuck := false
	withHarness(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if p, ok := r.(ledger.Payment); stuck && ok && op == ledgertest.Replace && p.LeaseUntil.IsZero() {
			return ledgertest.FailBefore // as after a kill: no write that ends the lease succeeds
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		type sale struct {
			amount string
			repeat bool
		}
		var sales []sale
		b.work = func(ctx context.Context, n int) ([]byte, error) {
			s, ok := x402.SaleOf(ctx)
			if !ok || s.Payer != b.wallet.Address().Checksum() || s.Network != terms().Network || s.Transaction != tx {
				t.Errorf("run %d: %+v, %t", n, s, ok)
			}
			sales = append(sales, sale{s.Amount, s.Repeat})
			if n == 2 {
				return nil, lookup.Fault(lookup.DNSTimeout, nil)
			}
			return []byte(`{"ok":true}`), nil
		}
		stuck = true
		h := b.sign(nil)
		b.ask(h, "GET /a")
		stuck = false
		time.Sleep(time.Minute)
		b.expect("after the kill", b.ask(h, "GET /a"), expected{status: 504, code: lookup.DNSTimeout, charged: "true", retryable: true, receipt: true})
		time.Sleep(time.Minute)
		b.offer = offer(t, terms(), "7000", "Oslo")
		b.expect("at another price", b.ask(b.sign(nil), "GET /a"), answered())
		if want := []sale{{"5000", false}, {"5000", true}, {"5000", true}}; !slices.Equal(sales, want) {
			t.Errorf("%+v, want %+v", sales, want)
		}
	})
}

// TestNewOfferRefuses plays offers that nobody could pay, or that no client could echo.
// NewOffer must refuse each of them, and its error must say what is wrong.
func TestNewOfferRefuses(t *testing.T) {
	whole := func() x402.PaymentRequired {
		return x402.PaymentRequired{
			X402Version: 2, Error: "Payment required", Resource: x402.Resource{URL: "https://api.example.com/v1/x"},
			Accepts: []x402.Requirements{terms().Requirements("5000")},
		}
	}
	extension := func(p *x402.PaymentRequired, raw string) {
		p.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(raw)}
	}
	if _, err := x402.NewOffer(whole()); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(p *x402.PaymentRequired){
		"one way to pay": func(p *x402.PaymentRequired) { p.Accepts = nil },
		"network":        func(p *x402.PaymentRequired) { p.Accepts[0].Network = "base" },
		"asset":          func(p *x402.PaymentRequired) { p.Accepts[0].Asset = "0x12" },
		"payTo":          func(p *x402.PaymentRequired) { p.Accepts[0].PayTo = "nobody" },
		"amount":         func(p *x402.PaymentRequired) { p.Accepts[0].Amount = "0.005" },
		"bazaar":         func(p *x402.PaymentRequired) { extension(p, `{"info":`) },
		"info":           func(p *x402.PaymentRequired) { extension(p, `{"info":7}`) },
		"must stay below": func(p *x402.PaymentRequired) {
			extension(p, `{"info":{"x":"`+strings.Repeat("x", x402.MaxOfferHeader)+`"}}`)
		},
	} {
		p := whole()
		spoil(&p)
		if _, err := x402.NewOffer(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error about %q", err, says)
		}
	}
}
