package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// shop has a ledger and a chain, both with the payments of a day that has ended.
type shop struct {
	*buyer
	store     *file.Store
	path      string
	day       time.Time
	clock     func() time.Time // the chain's clock
	transfers []x402test.Transfer
	// refusalStatus returns the HTTP status with which the node refuses a call, or 0 if the
	// node answers the call. If refusalStatus is nil, the node answers every call.
	refusalStatus func(call []byte) int
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{path: t.TempDir() + "/ledger.db", day: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3), clock: time.Now}
	var err error
	if s.store, err = file.Open(s.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	s.buyer = newBuyer(t, s.store, s.day.Add(12*time.Hour))
	s.terms = termsOf(t, payee, "5000")
	return s
}

func txOf(n int) string { return fmt.Sprintf("0x%064x", 0x7700+n) }

// addPaymentTransfer adds a transfer to the shop's chain. The transfer is made by payment n,
// has the given amount and happens at the shop's time.
func (s *shop) addPaymentTransfer(n int, value string) {
	s.addTransfer(keyOf(n), txOf(n), payee, value)
}

func (s *shop) addTransfer(key, transaction, to, value string) {
	s.transfers = append(s.transfers, x402test.Transfer{Key: key, Transaction: transaction, Payee: to, Value: value, At: s.now})
}

// recordAnswered records that payment n was paid in a transaction and was answered.
func (s *shop) recordAnswered(n int, transaction string) {
	s.t.Helper()
	s.must(s.settle(n, transaction).Redeem(s.t.Context(), ledger.Answer{Status: 200, Stored: true, Encoding: "gzip", Body: []byte("x")}, 0, false))
}

// applyRefundEvent applies one event of a refund to the record of payment n.
func (s *shop) applyRefundEvent(n int, event ledger.Event, c ledger.Change) {
	s.t.Helper()
	r, err := s.Fetch(s.t.Context(), keyOf(n))
	s.must(err)
	_, err = s.Apply(s.t.Context(), *r, event, c)
	s.must(err)
}

// step executes a line of a script at the shop's time. The line has a word, the number of a
// payment in hexadecimal and, for some words, a third part. If the word is unknown, step
// returns false.
func (s *shop) step(line string) bool {
	s.t.Helper()
	words := append(strings.Fields(line), "", "")
	number, _ := strconv.ParseInt(words[1], 16, 32)
	ctx, n, value := s.t.Context(), int(number), words[2]
	back, nobodys := fmt.Sprintf("0x%064x", 0xbb00+n), ledger.Key("eip155:8453", asset, sender, "")
	switch words[0] {
	case "honest": // a day with payments of every kind, on which the ledger and the chain agree
		text, err := os.ReadFile("testdata/honest.steps")
		s.must(err)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") && !s.step(line) {
				s.t.Fatalf("%q is not known", line)
			}
		}
	case "at": // sets the shop's time; the line has the duration since the beginning of the day
		d, err := time.ParseDuration(words[1])
		s.must(err)
		s.now = s.day.Add(d)
	case "sells-for":
		s.terms = termsOf(s.t, payee, words[1])
	case "sells-for-another":
		s.terms = termsOf(s.t, sender, "5000")
	case "moved":
		s.addPaymentTransfer(n, value)
	case "moved-in-another":
		s.addTransfer(keyOf(n), txOf(n+0x100), payee, value)
	case "given": // a transfer without an authorization
		s.addTransfer(nobodys, txOf(n), payee, value)
	case "answered":
		s.recordAnswered(n, txOf(n))
	case "answered-as":
		s.recordAnswered(n, txOf(1))
	case "owed":
		s.must(s.settle(n, txOf(n)).Release(ctx, ledger.Failure{Code: "dns_timeout", Message: "m"}))
	case "exhausted":
		at := s.now
		s.exhaustLookups(n, txOf(n), "dns_timeout")
		s.now = at
	case "refused":
		s.must(s.claim(keyOf(n)).End(ctx, ledger.EventRefused, "insufficient_funds", ""))
	case "in-doubt":
		s.must(s.claim(keyOf(n)).End(ctx, ledger.EventUncertain, "timeout", ""))
	case "begun": // a refund has begun
		s.applyRefundEvent(n, ledger.EventSendBack, ledger.Change{Operator: value})
	case "refunded":
		s.applyRefundEvent(n, ledger.EventRefund, ledger.Change{Transaction: back})
	case "sent-back":
		s.addTransfer(nobodys, back, payer, value)
	case "found": // reconcile has found the transfer on the chain
		_, _, err := s.RecordTransfer(ctx, ledger.Witness{
			Key: keyOf(n), Terms: termsOf(s.t, payee, value), At: s.now, Receipt: receiptOf(txOf(n)),
			Of: func(r ledger.Payment) bool { return strings.Contains(string(r.Terms), value) },
		})
		s.must(err)
	case "turned-away": // the node refuses the next call that contains the given text
		s.refusalStatus = func(call []byte) (status int) {
			if bytes.Contains(call, []byte(words[1])) {
				s.refusalStatus, status = nil, http.StatusTooManyRequests
			}
			return status
		}
	default:
		return false
	}
	return true
}

// node serves the shop's chain and returns the node's URL.
func (s *shop) node() string {
	chain := testbed.PlayNode{Moved: func() []x402test.Transfer { return s.transfers }, ChainID: 8453, Now: s.clock, Safe: time.Minute}
	return testbed.Serve(s.t, testbed.Relay{To: chain, Do: func(r *testbed.Relayed) {
		if s.refusalStatus != nil {
			if status := s.refusalStatus(r.Sent); status != 0 {
				r.WriteHeader(status)
				return
			}
		}
		r.Pass()
	}})
}

func (s *shop) env() map[string]string {
	return map[string]string{"LEDGER_FILE": s.path, "RPC_URL": s.node(), "PAY_TO": payee}
}
