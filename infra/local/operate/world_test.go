package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	payer  = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	asset  = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	lookup = "GET /v1/tools/dns?domain=example.com&type=A"
	// refundTx is the transaction of a refund, and sender is the account that pays the refund.
	refundTx = "0x00000000000000000000000000000000000000000000000000000000000000bb"
	sender   = "0x90f79bf6eb2c4f870365e785982e1f101e93b906"
	// paidIn is the transaction of the only payment on the chain of startNode. The payment is
	// of 5000 atomic units.
	paidIn = "0x0000000000000000000000000000000000000000000000000000000000000003"
)

func keyOf(n int) string {
	return ledger.Key("eip155:8453", asset, strings.ToLower(payer), fmt.Sprintf("0x%064x", n))
}

func termsOf(t *testing.T, payTo, amount string) json.RawMessage {
	t.Helper()
	terms, err := json.Marshal(x402.Terms{Network: "eip155:8453", Asset: asset, PayTo: payTo, Name: "USD Coin", Version: "2"}.Requirements(amount))
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func receiptOf(transaction string) ledger.Receipt {
	return ledger.Receipt{Transaction: transaction, Payer: payer, Network: "eip155:8453"}
}

// buyer records a test's payments in a ledger. The field now is the time on the ledger's
// clock, and the test sets it.
type buyer struct {
	*ledger.Ledger
	store ledger.Store
	t     *testing.T
	now   time.Time
	terms json.RawMessage
	// noNode means that the service which claims the payments has no node of the chain.
	noNode bool
}

func newBuyer(t *testing.T, store ledger.Store, now time.Time) *buyer {
	t.Helper()
	b := &buyer{t: t, store: store, now: now, terms: termsOf(t, payer, "5000")}
	b.Ledger = ledger.New(store, func() time.Time { return b.now }, rand.Text)
	return b
}

func (b *buyer) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// mostLookups is how many lookups each payment buys.
const mostLookups = 5

func (b *buyer) claim(key string) *ledger.Hold {
	b.t.Helper()
	c, err := b.Claim(b.t.Context(), ledger.Submission{
		Key: key, AuthDigest: key, SigDigest: "s", Token: "t", Request: lookup, Terms: b.terms, ValidBefore: b.now.Add(5 * time.Minute),
		MostLookups: mostLookups, NoNode: b.noNode,
	}, b.now.Add(30*time.Second))
	if err != nil || c.Result != ledger.Held {
		b.t.Fatalf("claim %s: %+v, %v", key, c, err)
	}
	return c.Hold
}

// settle claims payment n, and records that it was made in the given transaction.
func (b *buyer) settle(n int, transaction string) *ledger.Hold {
	b.t.Helper()
	h := b.claim(keyOf(n))
	b.must(h.Settled(b.t.Context(), receiptOf(transaction), true))
	return h
}

// exhaustLookups uses up a payment's lookups, the last of them an hour after the first.
func (b *buyer) exhaustLookups(n int, transaction, code string) {
	b.t.Helper()
	h := b.settle(n, transaction)
	for i := range mostLookups {
		if i > 0 {
			b.now = b.now.Add(15 * time.Minute)
			h = b.claim(keyOf(n))
		}
		b.must(h.Release(b.t.Context(), ledger.Failure{Code: code, Message: "m"}))
	}
}

// filling writes records into a ledger, beginning at the buyer's time.
type filling func(b *buyer)

// fillFour records four payments: one is in doubt, the payer of one can still get the answer,
// one is answered, and for one a refund is due.
func fillFour(b *buyer) {
	b.must(b.claim(keyOf(1)).End(b.t.Context(), ledger.EventUncertain, "timeout", ""))
	b.must(b.settle(2, "0x02").Release(b.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "No resolver answered."}))
	b.must(b.settle(4, "0x04").Redeem(b.t.Context(), ledger.Answer{Status: 200, Stored: true}, 0, false))
	b.exhaustLookups(3, paidIn, "upstream\x1b[31m")
}

// fillEveryState records three more payments, after the four of fillFour: one was refused, one
// is of another payer, and one came without a request and was refunded. The ledger then has a
// payment in every state.
func fillEveryState(b *buyer) {
	b.now = b.now.Add(time.Minute)
	b.noNode = true
	b.must(b.claim(keyOf(5)).End(b.t.Context(), ledger.EventRefused, "insufficient_funds", ""))
	b.noNode = false
	b.must(b.claim(ledger.Key("eip155:8453", asset, sender, "0x05")).Settled(b.t.Context(), ledger.Receipt{Transaction: "0x55"}, false))
	b.now = b.now.Add(time.Minute)
	r, _, err := b.RecordTransfer(b.t.Context(), ledger.Witness{Key: keyOf(6), Terms: b.terms, At: b.now, Receipt: receiptOf("0x06")})
	b.must(err)
	_, err = b.Apply(b.t.Context(), *r, ledger.EventRefund, ledger.Change{Transaction: refundTx})
	b.must(err)
	b.reserveTransfer(6, 0)
}

// reserveTransfer reserves the transfer with the index n in the transaction refundTx. The
// reservation is for the refund of the payment with the number owner.
func (b *buyer) reserveTransfer(owner, n int) {
	b.t.Helper()
	mine, err := b.Reserve(b.t.Context(), ledger.RepaymentKey("eip155:8453", asset, strings.ToLower(payer), refundTx, "5000", n), keyOf(owner))
	if b.must(err); !mine {
		b.t.Error("it is reserved already")
	}
}

// newLedgerFile returns the path of a new ledger file with the records that the fillings
// write. It also returns the time at which each filling begins, some hours ago.
func newLedgerFile(t *testing.T, fillings ...filling) (path string, paid time.Time) {
	t.Helper()
	paid = time.Now().Add(-3 * time.Hour).Truncate(time.Minute).UTC()
	path = filepath.Join(t.TempDir(), "ledger.db")
	s, err := file.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fillings {
		f(newBuyer(t, s, paid))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, paid
}

// startNode starts a node and returns its URL. Its chain has the payment paidIn and the
// transaction refundTx, unless one of the words changes this. A word that is an amount in
// atomic units adds a transfer of that amount to the transaction refundTx. The transfer goes to
// the payer. It comes from the account sender or, after the word from-payer, from the payer.
func startNode(t *testing.T, words ...string) (url string) {
	t.Helper()
	var moved []x402test.Transfer
	now, from := time.Now(), sender
	moves := func(in, from, to, value string, at time.Time) {
		moved = append(moved, x402test.Transfer{Key: ledger.Key("eip155:8453", asset, strings.ToLower(from), ""), Transaction: in, Payee: to, Value: value, At: at})
	}
	chain := testbed.PlayNode{ChainID: 8453, Now: time.Now, Moved: func() []x402test.Transfer { return moved }}
	paid := now.Add(-3 * time.Hour)
	for _, w := range words {
		switch w {
		case "from-payer":
			from = payer
		case "failed":
			chain.Failed = refundTx
		case "early": // the refund was made before the payment
			paid = now.Add(time.Hour)
		case "down", "unknown", "unpaid":
		default:
			moves(refundTx, from, payer, w, now)
		}
	}
	if !slices.Contains(words, "unpaid") {
		moves(paidIn, payer, payer, "5000", paid)
	}
	if !slices.Contains(words, "unknown") {
		moves(refundTx, sender, sender, "1", now)
	}
	if slices.Contains(words, "down") { // the node answers with something that is not JSON
		return testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "!") }))
	}
	return testbed.Serve(t, chain)
}

// operate runs a command line, checks its exit status and returns its output.
func operate(t *testing.T, code int, env map[string]string, args ...string) (out, notes string) {
	t.Helper()
	return operateAt(t, time.Now, code, env, args...)
}

func operateAt(t *testing.T, now func() time.Time, code int, env map[string]string, args ...string) (out, notes string) {
	t.Helper()
	var o, n bytes.Buffer
	if got := run(t.Context(), args, order{getenv: func(name string) string { return env[name] }, now: now, out: &o, notes: &n}); got != code {
		t.Errorf("%q: exit status %d, want %d\n%s%s", args, got, code, &o, &n)
	}
	return o.String(), n.String()
}

// checkContains checks that out contains every part.
func checkContains(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("it does not say %q:\n%s", part, out)
		}
	}
}

// contradictions returns a filling for each contradiction, by the name of the contradiction.
// Each filling writes a record of payment 8 that has this contradiction.
func contradictions(t *testing.T) map[string]filling {
	t.Helper()
	all := map[string]filling{}
	for name, spoil := range map[string]func(*ledger.Payment, *x402.Requirements){
		"no-amount":       func(_ *ledger.Payment, q *x402.Requirements) { q.Amount = "" },
		"amount-0":        func(_ *ledger.Payment, q *x402.Requirements) { q.Amount = "0" },
		"amount-5e3":      func(_ *ledger.Payment, q *x402.Requirements) { q.Amount = "5e3" },
		"over-a-uint256":  func(_ *ledger.Payment, q *x402.Requirements) { q.Amount = strings.Repeat("9", 78) },
		"another-network": func(_ *ledger.Payment, q *x402.Requirements) { q.Network = "eip155:1" },
		"another-token":   func(_ *ledger.Payment, q *x402.Requirements) { q.Asset = payer },
		"no-receipt":      func(r *ledger.Payment, _ *x402.Requirements) { r.Receipt = nil },
		"another-payer":   func(r *ledger.Payment, _ *x402.Requirements) { r.Receipt.Payer = sender },
	} {
		all[name] = func(b *buyer) {
			terms := x402.Terms{Network: "eip155:8453", Asset: asset, PayTo: payer}.Requirements("5000")
			r := ledgertest.First(keyOf(8))
			r.State, r.SettledAt, r.DueBack, r.ExpiresAt = ledger.Settled, r.CreatedAt, ledger.DueLate, time.Time{}
			r.Receipt = &ledger.Receipt{Transaction: "0x08", Payer: payer}
			spoil(&r, &terms)
			var err error
			r.Terms, err = json.Marshal(terms)
			b.must(err)
			ledgertest.MustPut(b.t, b.store, r)
		}
	}
	return all
}
