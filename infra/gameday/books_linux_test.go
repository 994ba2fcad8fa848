package gameday

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// chainID is that of the chain that play money moves on.
const chainID = 8453

// node is a node of that chain, on which blocks are safe when they are this old.
func (f *facilitator) node(safe time.Duration, now func() time.Time) http.Handler {
	return chaintest.PlayNode{Moved: f.books.Transfers, ChainID: chainID, Now: now, Safe: safe}
}

// dayBooks are what make books prints of a day, in JSON.
type dayBooks struct {
	Received    tally `json:"received"`
	Answered    tally `json:"answered"`
	AnswerOwed  tally `json:"answer_owed"`
	RefundDue   tally `json:"refund_due"`
	InDoubt     tally `json:"in_doubt"`
	Unchecked   int   `json:"unchecked"`
	Count       int   `json:"difference_count"`
	Differences []struct{ Kind, Key string }
}

type tally struct{ Count int }

// audit is make books over the world's table, for every day since the world was
// opened, and past the door of the node. Its blocks are safe at once, and its clock
// is some seconds ahead, so that nothing is too young for the books.
func (w *world) audit() dayBooks {
	w.Helper()
	node := httptest.NewServer(w.facilitator.node(0, func() time.Time { return time.Now().Add(5 * time.Second) }))
	defer node.Close()
	var all dayBooks
	now := time.Now().UTC()
	for day := w.opened.UTC().Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		var b dayBooks
		w.operate(&b, []string{"RPC_URL=" + node.URL, "PAY_TO=" + boot.LocalPayTo}, "-books", day.Format(time.DateOnly))
		all.Received.Count += b.Received.Count
		all.Answered.Count += b.Answered.Count
		all.AnswerOwed.Count += b.AnswerOwed.Count
		all.RefundDue.Count += b.RefundDue.Count
		all.InDoubt.Count += b.InDoubt.Count
		all.Unchecked, all.Count = all.Unchecked+b.Unchecked, all.Count+b.Count
		all.Differences = append(all.Differences, b.Differences...)
	}
	return all
}

// audited holds make books to what the scenario has come to: no differences, every
// transfer is there, and what is owed is what make owed lists. Then it makes one
// difference of every kind, and make books has to name those and no other.
func (c scenario) audited(w *world, out *outcome) {
	w.Helper()
	b := w.audit()
	moved := len(w.facilitator.books.Transfers())
	if b.Count != 0 || b.Unchecked != 0 || b.InDoubt.Count != 0 {
		w.Errorf("make books names differences, or doubts, in the end: %+v", b)
	}
	// Where a busy machine was too late to record an answer, it is owed still, and make
	// owed lists it when its lease has ended.
	owed, late := b.AnswerOwed.Count+b.RefundDue.Count, strings.Count(w.series.log(), `"unrecorded":true`)
	if b.Received.Count != moved || b.Answered.Count != moved-owed || owed < len(out.left) || owed > len(out.left)+late {
		w.Errorf("%d transfers, %d debts, %d answers unrecorded, and make books says: %+v", moved, len(out.left), late, b)
	}
	want := w.disturb(c.operations(w.T)[0])
	got := map[string]string{}
	after := w.audit()
	for _, d := range after.Differences {
		got[d.Key] = d.Kind
	}
	if diff := cmp.Diff(want, got); diff != "" || after.Count != len(want) {
		w.Errorf("make books of %d differences names %d (-made +named):\n%s", len(want), after.Count, diff)
	}
}

// disturb makes a difference of every kind between the table and the chain. It
// returns the kinds by key.
func (w *world) disturb(op catalog.Operation) map[string]string {
	w.Helper()
	n := 1000
	fresh := func() ledger.Record {
		n++
		return w.drafted(w.newPayer(op, n))
	}
	store := func(r ledger.Record, state ledger.State) string {
		r.State = state
		_, err := w.store().Create(w.Context(), r)
		must(w, err)
		return r.Key
	}
	move := func() ledger.Record {
		n++
		p := w.newPayer(op, n)
		w.facilitator.pay(w, p)
		return w.drafted(p)
	}
	hash := func() string { return fmt.Sprintf("0x%064x", rand.Uint64()) } //nolint:gosec // no secret
	paid := func(r ledger.Record) ledger.Record {
		r.SettledAt, r.Receipt = r.CreatedAt, &ledger.Receipt{Transaction: hash(), Network: testbed.Terms(w).Network}
		return r
	}
	less := func(r ledger.Record) ledger.Record {
		r.Terms = w.requirements("1")
		return r
	}
	refunded := paid(move())
	refunded.Refund, refunded.Lookups = hash(), ledger.MaxLookups
	return map[string]string{
		move().Key:                                 "transfer_without_record",
		store(move(), ledger.Refused):              "transfer_not_recorded",
		store(move(), ledger.Uncertain):            "transfer_not_recorded",
		store(paid(fresh()), ledger.Settled):       "settled_without_transfer",
		store(paid(fresh()), ledger.Redeemed):      "answered_unpaid",
		store(less(paid(move())), ledger.Redeemed): "amounts_differ",
		store(refunded, ledger.Refunded):           "refund_without_transfer",
	}
}

// requirements are what a payment of an amount has to meet.
func (w *world) requirements(amount string) json.RawMessage {
	w.Helper()
	raw, err := json.Marshal(testbed.Terms(w).Requirements(amount))
	must(w, err)
	return raw
}

// drafted is the record that a payer's payment would have.
func (w *world) drafted(p *payer) ledger.Record {
	w.Helper()
	payment, err := x402.DecodePayment(p.signature)
	must(w, err)
	t := testbed.Terms(w)
	r := ledgertest.First(ledger.Key(t.Network, strings.ToLower(t.Asset), p.address, "0x"+hex.EncodeToString(payment.Nonce[:])))
	now := time.Now().UTC()
	r.Terms, r.Request = w.requirements(p.op.Amount), catalog.Method+" "+p.op.Path
	r.CreatedAt, r.UpdatedAt, r.LeaseUntil, r.ValidBefore, r.ExpiresAt = now, now, time.Time{}, now.Add(time.Minute), now.AddDate(0, 1, 0)
	return r
}

// pay has a payment's money moved, past the service.
func (f *facilitator) pay(w *world, p *payer) {
	w.Helper()
	raw, err := base64.StdEncoding.DecodeString(p.signature)
	must(w, err)
	var payload struct{ Accepted json.RawMessage }
	must(w, json.Unmarshal(raw, &payload))
	body, err := json.Marshal(map[string]json.RawMessage{"paymentPayload": raw, "paymentRequirements": payload.Accepted})
	must(w, err)
	q := httptest.NewRequestWithContext(w.Context(), http.MethodPost, "/settle", bytes.NewReader(body))
	answer := httptest.NewRecorder()
	f.books.ServeHTTP(answer, q)
	if !strings.Contains(answer.Body.String(), `"success":true`) {
		w.Fatalf("the facilitator says %s", answer.Body)
	}
}
