package e2e

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// signatures is how many authorizations a payer signs for one question.
const signatures = 200

// sendSignaturesOver spreads authorizations over two processes of a fleet that one
// payer has signed for one question, all sent at once, as clients do that sign
// anew whenever they hear nothing: one of them is settled. Each of the others gets
// its answer, or is told that a payment is in progress; none is used up, and none
// is asked to pay once more.
func sendSignaturesOver(t *testing.T, l *lab, f *fleet) {
	r := &run{TB: t, lab: l, d: f.members[0], client: f.client, id: "fleetsignatures"}
	r.wallet, r.payer = l.wallet(t)
	path := r.fill(lookup("{healthy}", "A"))
	headers := make([]string, signatures)
	for i := range headers {
		r.sign(path, nil, nil)
		headers[i] = r.header
	}
	// The one that settles is held up until some of the others are there.
	g := l.hold(r.payer)
	defer openAfter(g, 3*time.Second)()
	answers := make([]exchange, signatures)
	var again atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := rush(t, f.members[:2], signatures, func(i int, v visitor) (err error) {
		for {
			answers[i], err = v.visit(ctx, path, headers[i])
			// A store that is too slow for a moment says when to come again.
			if e := answers[i]; err != nil || e.status == http.StatusOK || e.status == http.StatusConflict || e.header.Get("Retry-After") == "" {
				return err
			}
			again.Add(1)
			if err := rest(ctx, answers[i]); err != nil {
				return err
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	first, replayed, busy := tallySignatures(t, r, answers)
	if first != 1 {
		t.Errorf("%d answers were looked up, want one", first)
	}
	if err := l.books(r.payer, catalog.DNS().Amount, l.settles(r.payer), 1); err != nil {
		t.Error(err)
	}
	// Whoever was told that a payment is in progress comes again with the same
	// signature, and gets the answer.
	if err := crowd(signatures, loadAtOnce, func(i int) (err error) {
		if answers[i].status == http.StatusConflict {
			answers[i], err = f.persist(ctx, path, headers[i], func(exchange) {})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, left := tallySignatures(t, r, answers); left > 0 {
		t.Errorf("%d are told still that a payment is in progress", left)
	}
	is(t, "transfers", len(l.facilitator.Moved(r.payer)), 1)
	t.Logf("%d authorizations of one purchase over two processes: %d looked up, %d answered by that one, %d times 409, %d times told to come again",
		signatures, first, replayed, busy, again.Load())
}

// tallySignatures holds all answers to being one answer.
func tallySignatures(t *testing.T, r *run, answers []exchange) (first, replayed, busy int) {
	t.Helper()
	var receipt string
	for _, e := range answers {
		switch {
		case e.status == http.StatusConflict:
			busy++
			w := fails(fault.PaymentInProgress)
			if e.header.Get(x402.HeaderResponse) != "" {
				w = w.charge(moved) // it came during the lookup
			}
			r.check(e, w)
			continue
		case e.status != http.StatusOK:
			t.Errorf("one of the signatures got %s", e)
			continue
		case e.header.Get(x402.HeaderReplayed) == "":
			first++
		default:
			replayed++
		}
		is(t, "body", string(e.body), r.fill(healthy().body))
		if paid := e.header.Get(x402.HeaderResponse); receipt == "" {
			receipt = paid
		} else if paid != receipt {
			t.Errorf("two receipts for one purchase: %s and %s", receipt, paid)
		}
	}
	return first, replayed, busy
}
