package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// harness is a Reconciler with fakes around it, in a bubble with fake time.
type harness struct {
	t          *testing.T
	memory     *ledgertest.Memory
	store      *ledgertest.Faulty
	ledger     *ledger.Ledger
	index      ledger.Index
	noEvidence bool              // true means that the Reconciler gets no evidence from the chain
	chain      reconcile.Scanner // nil means that no transfers are read
	find       func(ctx context.Context, q x402.Question) x402.Finding
	asked      []x402.Question
	log        strings.Builder
}

func (d *harness) Find(ctx context.Context, q x402.Question) x402.Finding {
	d.asked = append(d.asked, q)
	return d.find(ctx, q)
}

// withReconciler runs a test with a harness. faults says which calls of the store fail; if it
// is nil, none fails.
func withReconciler(t *testing.T, faults ledgertest.Decide, test func(t *testing.T, d *harness)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &harness{t: t, memory: new(ledgertest.Memory), find: verdict(x402.Finding{Fate: x402.StillOpen})}
		d.index = d.memory
		d.store = ledgertest.NewFaulty(t, d.memory, faults)
		var ids atomic.Int64
		d.ledger = ledger.New(d.store, time.Now, func() string { return fmt.Sprint("w", ids.Add(1)) })
		test(t, d)
	})
}

func verdict(f x402.Finding) func(context.Context, x402.Question) x402.Finding {
	return func(context.Context, x402.Question) x402.Finding { return f }
}

func (d *harness) reconciler() *reconcile.Reconciler {
	c := &reconcile.Reconciler{
		Ledger: d.ledger, Index: d.index, Now: time.Now, Terms: terms(),
		Log: slog.New(slog.NewTextHandler(&d.log, nil)), Cheapest: big.NewInt(cheapest),
		Error: func(f *fault.Error, s x402.PaymentStatus) []byte {
			return fmt.Appendf(nil, "%s, charged %v, retryable %v", f.Code, *s.Charged, s.Retryable)
		},
	}
	if !d.noEvidence {
		c.Evidence = d
	}
	if d.chain != nil {
		c.Scanner = d.chain
	}
	return c
}

// run reconciles once, and checks that the numbers of the summary add up.
func (d *harness) run(ctx context.Context) (reconcile.Summary, error) {
	d.t.Helper()
	s, err := d.reconciler().Run(ctx)
	if sum := s.SettledLate + s.RefusedLate + s.StillOpen + s.CannotTell + s.Undue + s.Skipped + s.Failed + s.Left; sum != s.Listed {
		d.t.Errorf("%d listed and %d accounted for: %+v", s.Listed, sum, s)
	}
	if s.Open > s.Listed || s.RefundsDue > s.Owed {
		d.t.Errorf("a part is more than the whole: %+v", s)
	}
	return s, err
}

// runAndCheck runs reconcile once, and checks the summary and that there is no error.
func (d *harness) runAndCheck(want reconcile.Summary) {
	d.t.Helper()
	got, err := d.run(d.t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		d.t.Errorf("summary (-want +got), %v:\n%s", err, diff)
	}
}

// checkOutstanding compares the outstanding payments with the expected ones. Each payment is
// written as its kind and its number in hexadecimal, such as "doubt c".
func (d *harness) checkOutstanding(want ...string) {
	d.t.Helper()
	var got []string
	missed, err := d.reconciler().Outstanding(d.t.Context(), func(r ledger.Payment) {
		list := "owed"
		switch {
		case r.InDoubt():
			list = "doubt"
		case r.Unasked():
			list = "unasked"
		case ledger.Stand(&r, ledger.View{Now: time.Now()}).Meaning().Case == ledger.CaseRefundDue:
			list = "due"
		}
		got = append(got, list+" "+strings.TrimLeft(strings.Split(r.Key, "|")[3], "0x"))
	})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || missed != 0 || err != nil {
		d.t.Errorf("outstanding, %d missed, %v (-want +got):\n%s", missed, err, diff)
	}
}

const (
	cheapest    = 1000 // the lowest price
	mostLookups = 5    // how many lookups the seller allows for a payment
	payer       = "0x857b06519e91e3a54538791bdbb0e22373e36b66"
	tx          = "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9" // the transaction of a settlement
	attemptTime = 30 * time.Second
)

func terms() x402.Terms {
	usdc := x402.USDC()
	usdc.PayTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	return usdc
}

// must returns v, or panics if there is an error. It is for set-up that fails only if the test
// is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func address(s string) x402.Address { return must(x402.ParseAddress(s)) }

// payment returns the nth payment, which is worth 5,000 atomic units.
func payment(n int) ledger.Submission {
	return ledger.Submission{
		Key:        ledger.Key(terms().Network, strings.ToLower(terms().Asset), payer, fmt.Sprintf("0x%064x", n)),
		AuthDigest: fmt.Sprint("a", n), SigDigest: fmt.Sprint("s", n), Request: "GET /a", Terms: must(json.Marshal(terms().Requirements("5000"))), Token: fmt.Sprint("t", n),
		ValidBefore: time.Now().Add(5 * time.Minute), MostLookups: mostLookups,
	}
}

// claim claims the nth payment, after the given changes.
func (d *harness) claim(n int, changes ...func(*ledger.Submission)) *ledger.Hold {
	d.t.Helper()
	p := payment(n)
	for _, change := range changes {
		change(&p)
	}
	c, err := d.ledger.Claim(d.t.Context(), p, time.Now().Add(attemptTime))
	if err != nil || c.Result != ledger.Held {
		d.t.Fatalf("claim: %+v, %v", c, err)
	}
	return c.Hold
}

// must stops the test if its set-up fails.
func (d *harness) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// makeUncertain makes a payment whose settlement got no reply.
func (d *harness) makeUncertain(n int, changes ...func(*ledger.Submission)) {
	d.t.Helper()
	d.must(d.claim(n, changes...).End(d.t.Context(), ledger.EventUncertain, "connection lost", tx))
}

func (d *harness) makeAbandoned(n int) {
	d.t.Helper()
	d.claim(n)
	time.Sleep(attemptTime)
}

// makeOwed makes a settled payment whose lookups have failed the given number of times.
func (d *harness) makeOwed(n, lookups int) {
	d.t.Helper()
	h := d.claim(n)
	d.must(h.Settled(d.t.Context(), ledger.Receipt{Transaction: tx}, lookups > 0))
	for i := range lookups {
		if i > 0 {
			time.Sleep(11 * time.Minute)
			h = d.claim(n)
		}
		d.must(h.Release(d.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	}
}

func (d *harness) record(n int) ledger.Payment {
	d.t.Helper()
	r := ledgertest.Payment(d.t, d.memory, payment(n).Key)
	if r == nil {
		d.t.Fatalf("there is no record %d", n)
	}
	return *r
}

// TestReconcileVerdicts checks what each finding does to a payment in doubt. The payment's
// settlement got no reply, or its attempt died.
func TestReconcileVerdicts(t *testing.T) {
	t.Parallel()
	reason := "authorization expired unused"
	for name, c := range map[string]verdictRow{
		"paid": {
			finding: x402.Finding{Fate: x402.Paid, Transaction: "0x07"},
			want:    reconcile.Summary{SettledLate: 1, Owed: 1},
			state:   ledger.Settled,
			doubt:   true,
			receipt: &ledger.Receipt{Transaction: "0x07", Payer: "0x857b06519E91e3A54538791bDbb0E22373e36b66", Network: "eip155:8453"},
		},
		"never paid": {
			finding: x402.Finding{Fate: x402.NeverPaid, Reason: reason},
			want:    reconcile.Summary{RefusedLate: 1},
			state:   ledger.Refused,
			reason:  reason,
		},
		"still open": {
			finding:     x402.Finding{Fate: x402.StillOpen},
			want:        reconcile.Summary{StillOpen: 1},
			state:       ledger.Uncertain,
			doubt:       true,
			keepsReason: true,
		},
		"cannot tell": {
			finding:     x402.Finding{Cause: errors.New("down")},
			want:        reconcile.Summary{CannotTell: 1},
			state:       ledger.Uncertain,
			doubt:       true,
			keepsReason: true,
		},
	} {
		for start, begin := range map[string]func(*harness){
			"connection lost": func(d *harness) { d.makeUncertain(1) },
			"an earlier attempt ended without a verdict": func(d *harness) { d.makeAbandoned(1) },
		} {
			t.Run(name+" after "+start, func(t *testing.T) {
				withReconciler(t, nil, func(t *testing.T, d *harness) {
					d.find = verdict(c.finding)
					claimed := time.Now()
					until := payment(1).ValidBefore
					begin(d)
					before := d.record(1)
					want := c.want
					want.Listed, want.Open = 1, 1
					d.runAndCheck(want)
					r := d.record(1)
					if r.Version != before.Version+2 {
						t.Errorf("version %d after %d", r.Version, before.Version)
					}
					c.checkRecord(t, r, start)
					d.checkQuestion(x402.Question{
						ValidBefore: until.UTC(), Since: claimed.UTC(), Sent: true, Transaction: before.Transaction, Value: big.NewInt(5000),
					})
				})
			})
		}
	}
}

// verdictRow is a finding from the chain, and the expected result for a payment in doubt.
type verdictRow struct {
	finding     x402.Finding
	want        reconcile.Summary
	state       ledger.State
	doubt       bool
	receipt     *ledger.Receipt
	reason      string
	keepsReason bool // whether the record keeps the reason of the attempt
}

// checkRecord checks the record of a payment after the finding. attempt is the reason that the
// attempt had written to the record.
func (c verdictRow) checkRecord(t *testing.T, r ledger.Payment, attempt string) {
	t.Helper()
	if r.State != c.state || r.Doubt != c.doubt || !r.LeaseUntil.IsZero() {
		t.Errorf("%s, doubt %v, lease until %v", r.State, r.Doubt, r.LeaseUntil)
	}
	if diff := cmp.Diff(c.receipt, r.Receipt); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	reason := c.reason
	if c.keepsReason {
		reason = attempt
	}
	if r.Reason != reason {
		t.Errorf("reason %q, want %q", r.Reason, reason)
	}
}

// checkQuestion checks that the chain was asked only the question q, which is about the first
// payment.
func (d *harness) checkQuestion(q x402.Question) {
	d.t.Helper()
	q.Payer = must(x402.ParseAddress(payer))
	q.Payee = must(x402.ParseAddress(terms().PayTo))
	q.Nonce[31] = 1
	bigs := cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
	if diff := cmp.Diff([]x402.Question{q}, d.asked, bigs, cmpopts.EquateApproxTime(0)); diff != "" {
		d.t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// toOtherChain moves a payment to another chain.
func toOtherChain(p *ledger.Submission) {
	p.Key = strings.Replace(p.Key, terms().Network, "eip155:84532", 1)
}

func redeem(d *harness, h *ledger.Hold) {
	d.must(h.Settled(d.t.Context(), ledger.Receipt{Transaction: tx}, true))
	d.must(h.Redeem(d.t.Context(), ledger.Answer{Status: 200, Stored: true}, 0, false))
}

// lists is an index whose lists never change.
type lists struct {
	open, owed           []string
	openFails, owedFails error
}

func (l lists) List(_ context.Context, list string, _ time.Time, _ ledger.Place, _ int) ([]ledger.Place, error) {
	if list == ledger.ListOwed {
		return places(l.owed), l.owedFails
	}
	return places(l.open), l.openFails
}

func places(keys []string) (list []ledger.Place) {
	for _, key := range keys {
		list = append(list, ledger.Place{Key: key})
	}
	return list
}
