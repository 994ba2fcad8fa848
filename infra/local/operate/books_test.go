package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// shop is a ledger and the chain of a day that is over.
type shop struct {
	*buyer
	store *file.Store
	path  string
	day   time.Time
	moved []x402test.Transfer
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{path: t.TempDir() + "/ledger.db", day: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)}
	var err error
	if s.store, err = file.Open(s.path); err != nil {
		t.Fatal(err)
	}
	s.buyer = newBuyer(t, s.store, s.day.Add(12*time.Hour))
	s.terms = termsOf(t, payee, "5000")
	return s
}

func txOf(n int) string { return fmt.Sprintf("0x%064x", 0x7700+n) }

// move lets payment n move an amount at the shop's time.
func (s *shop) move(n int, value string) {
	s.moved = append(s.moved, x402test.Transfer{Key: keyOf(n), Transaction: txOf(n), Payee: payee, Value: value, At: s.now})
}

// settled is a payment that the ledger knows to be made.
func (s *shop) settled(n int) *ledger.Hold {
	s.t.Helper()
	return s.buyer.settled(n, txOf(n))
}

// answered is a payment that was answered.
func (s *shop) answered(n int) {
	s.t.Helper()
	s.must(s.settled(n).Redeem(s.t.Context(), ledger.Answer{Status: 200, Stored: true, Encoding: "gzip", Body: []byte("x")}, 0, false))
}

// owed is a payment whose lookup has failed once.
func (s *shop) owed(n int) {
	s.t.Helper()
	s.must(s.settled(n).Release(s.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
}

// exhausted uses up a payment's lookups.
func (s *shop) exhausted(n int) {
	s.t.Helper()
	at := s.now
	s.buyer.exhausted(n, txOf(n), "dns_timeout")
	s.now = at
}

func (s *shop) refused(n int) {
	s.t.Helper()
	s.must(s.claim(keyOf(n)).End(s.t.Context(), ledger.EventRefused, "insufficient_funds", ""))
}

func (s *shop) inDoubt(n int) {
	s.t.Helper()
	s.must(s.claim(keyOf(n)).End(s.t.Context(), ledger.EventUncertain, "timeout", ""))
}

func (s *shop) refund(n int, value string) {
	s.t.Helper()
	_, err := s.Refund(s.t.Context(), keyOf(n), fmt.Sprintf("0x%064x", 0xbb00+n))
	s.must(err)
	if value != "" {
		s.moved = append(s.moved, x402test.Transfer{
			Key: ledger.Key("eip155:8453", asset, sender, ""), Transaction: fmt.Sprintf("0x%064x", 0xbb00+n), Payee: payer, Value: value, At: s.now,
		})
	}
}

// honest is a day on which every payment is in order, and of which there is
// something of everything.
func (s *shop) honest() {
	s.t.Helper()
	for n := 1; n <= 3; n++ {
		s.move(n, "5000")
		s.answered(n)
	}
	s.move(4, "5000")
	s.owed(4)
	s.move(5, "5000")
	s.exhausted(5)
	s.move(6, "5000")
	s.exhausted(6)
	s.refund(6, "5000")
	s.inDoubt(7)
	s.refused(8)
	s.moved = append(s.moved, x402test.Transfer{Key: ledger.Key("eip155:8453", asset, sender, ""), Transaction: txOf(9), Payee: payee, Value: "77", At: s.now})
	s.move(17, "3") // less than anything costs
	s.refused(18)
	s.move(18, "4")
	// The last second of the day, recorded on the next; and the first, which the
	// service's clock recorded on the day before.
	s.now = s.day.Add(24*time.Hour - time.Second)
	s.move(10, "5000")
	s.now = s.now.Add(2 * time.Second)
	s.answered(10)
	s.now = s.day
	s.move(11, "5000")
	s.now = s.day.Add(-time.Second)
	s.answered(11)
	// The days before and after.
	s.move(12, "5000")
	s.answered(12)
	s.now = s.day.Add(24 * time.Hour)
	s.move(13, "5000")
	s.answered(13)
	// Found by reconcile on this day, moved two days before; and another payee's.
	s.now = s.day.Add(-48 * time.Hour)
	h := s.claim(keyOf(14))
	s.move(14, "5000")
	s.now = s.day.Add(12 * time.Hour)
	s.must(h.Settled(s.t.Context(), receiptOf(txOf(14)), false))
	ours := s.terms
	s.terms = termsOf(s.t, sender, "5000")
	s.answered(15)
	// Money with the nonce of a payment that was refused, which has a record of its
	// own.
	s.terms = ours
	s.refused(16)
	s.move(16, "6000")
	s.testify(16, "6000")
}

// testify records a transfer as reconcile does.
func (s *shop) testify(n int, value string) {
	s.t.Helper()
	_, err := s.Testify(s.t.Context(), ledger.Witness{
		Key: keyOf(n), Terms: termsOf(s.t, payee, value), At: s.now, Receipt: receiptOf(txOf(n)),
		Of: func(r ledger.Record) bool { return strings.Contains(string(r.Terms), value) },
	})
	s.must(err)
}

// node serves the shop's chain, but for the calls that are refused with a status.
func (s *shop) node(refuse func(call []byte) (status int)) string {
	s.t.Helper()
	chain := testbed.PlayNode{Moved: func() []x402test.Transfer { return s.moved }, ChainID: 8453, Now: time.Now, Safe: time.Minute}
	n := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		if status := refuse(call); status != 0 {
			w.WriteHeader(status)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(call))
		chain.ServeHTTP(w, r)
	}))
	s.t.Cleanup(n.Close)
	return n.URL
}

// willing refuses no call.
func willing([]byte) int { return 0 }

func (s *shop) env() map[string]string {
	return map[string]string{"LEDGER_FILE": s.path, "RPC_URL": s.node(willing), "PAY_TO": payee}
}

// books runs the command for a day.
func (s *shop) books(code int, env map[string]string, day time.Time, args ...string) (out, notes string) {
	s.t.Helper()
	return operate(s.t, code, env, slices.Concat([]string{"books"}, args, []string{day.Format(time.DateOnly)})...)
}

// closed ends the shop's use of its file.
func (s *shop) closed() *shop {
	s.t.Helper()
	s.must(s.store.Close())
	return s
}

// honestDay is a shop that is closed after an honest day.
func honestDay(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	s.honest()
	return s.closed()
}

// An honest day has no differences: every payment is counted once, on the day on
// which its money moved.
func TestBooks(t *testing.T) {
	t.Parallel()
	s := honestDay(t)
	day := s.day.Format(time.DateOnly)
	out, notes := s.books(0, s.env(), s.day)
	out = regexp.MustCompile(`(?m)^chain   127\.0\.0\.1:\d+$`).ReplaceAllString(out, "chain   N")
	want := `books   ` + day + `, UTC, the whole day
ledger  ` + s.path + `, 17 records
chain   N
token   0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 on eip155:8453
payee   ` + payee + `

                   PAYMENTS  AMOUNT     (ATOMIC UNITS)
received           9         $0.046     (46000)
  answered         5         $0.025     (25000)
    /v1/tools/dns  5         $0.025     (25000)
  refund due       3         $0.016     (16000)
  refunded         1         $0.005     (5000)
deposits           3         $0.000084  (84)
refunds made       1         $0.005     (5000)
in doubt           1         $0.005     (5000)

           1 recorded on this day moved at another time: in the books of that day
           1 recorded on this day under another network, token or payee: not compared
total   5 answers sold for $0.025, $0.046 received in 9 payments; no differences
`
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("printed (-want +got):\n%s\n%s", diff, notes)
	}
	for _, offset := range []int{-1, 1} {
		out, _ := s.books(0, s.env(), s.day.AddDate(0, 0, offset))
		prints(t, out, "total   1 answer sold for $0.005, $0.005 received in 1 payment; no differences\n")
	}
}

// named are the differences of a day, as one line each.
func named(t *testing.T, out string) (list []string) {
	t.Helper()
	var b struct {
		Count       int `json:"difference_count"`
		Differences []difference
	}
	if err := json.Unmarshal([]byte(out), &b); err != nil || b.Count != len(b.Differences) {
		t.Fatalf("%v, %d of %d\n%s", err, len(b.Differences), b.Count, out)
	}
	for _, d := range b.Differences {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s received %s recorded %s",
			d.Key[len(d.Key)-3:], d.Kind, d.Standing, d.Received, d.Recorded)))
	}
	return list
}

// Each difference that is made is named, alone and beside the others, and nothing
// else is.
func TestBooksDifferences(t *testing.T) {
	t.Parallel()
	const unpaid = " answered_unpaid answered received  recorded 5000"
	cases := map[string]struct {
		make func(*shop)
		want string
	}{
		"nobody has a record of it": {func(s *shop) { s.move(0x101, "5000") }, "101 transfer_without_record  received 5000 recorded"},
		"it was refused": {func(s *shop) {
			s.refused(0x102)
			s.move(0x102, "5000")
		}, "102 transfer_not_recorded refused received 5000 recorded 5000"},
		"it is in doubt": {func(s *shop) {
			s.inDoubt(0x103)
			s.move(0x103, "5000")
		}, "103 transfer_not_recorded in_doubt received 5000 recorded 5000"},
		"it was answered for nothing": {func(s *shop) { s.answered(0x104) }, "104" + unpaid},
		"it is owed for nothing":      {func(s *shop) { s.owed(0x105) }, "105 settled_without_transfer refund_due received  recorded 5000"},
		"too little came": {func(s *shop) {
			s.move(0x106, "4999")
			s.answered(0x106)
		}, "106 amounts_differ answered received 4999 recorded 5000"},
		"its nonce paid something else": {func(s *shop) {
			s.answered(0x107)
			s.move(0x107, "6000")
			s.testify(0x107, "6000")
		}, "107" + unpaid},
		"it names another's transaction": {func(s *shop) {
			s.must(s.buyer.settled(0x108, txOf(1)).Redeem(s.t.Context(), ledger.Answer{Status: 200, Stored: true}, 0, false))
		}, "108" + unpaid},
		"its refund was never sent": {func(s *shop) {
			s.move(0x109, "5000")
			s.exhausted(0x109)
			s.refund(0x109, "")
		}, "109 refund_without_transfer refunded received  recorded 5000"},
		"its refund was too small": {func(s *shop) {
			s.move(0x10a, "5000")
			s.exhausted(0x10a)
			s.refund(0x10a, "4999")
		}, "10a refund_without_transfer refunded received  recorded 5000"},
		"it was refused when things cost less": {func(s *shop) {
			ours := s.terms
			s.terms = termsOf(s.t, payee, "4")
			s.refused(0x10c)
			s.terms = ours
			s.move(0x10c, "4")
		}, "10c transfer_not_recorded refused received 4 recorded 4"},
		"its money came in another transaction": {func(s *shop) {
			s.refused(0x10d)
			at := s.now
			s.now = s.day.Add(-time.Hour)
			s.testify(0x10d, "6000")
			s.now = at
			s.move(0x10d, "6000")
			s.moved[len(s.moved)-1].Transaction = txOf(0x20d)
		}, "10d transfer_not_recorded refused received 6000 recorded 5000"},
		"refunded, and never paid": {func(s *shop) {
			s.exhausted(0x10b)
			s.refund(0x10b, "5000")
		}, "10b settled_without_transfer refunded received  recorded 5000"},
	}
	all := newShop(t)
	all.honest()
	want := map[string]bool{}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.honest()
			s.now = s.day.Add(13 * time.Hour)
			c.make(s)
			out, notes := s.closed().books(exitDiffers, s.env(), s.day, "-json")
			if diff := cmp.Diff([]string{c.want}, named(t, out)); diff != "" || notes != errDifferences.Error()+"\n" {
				t.Errorf("differences (-want +got):\n%s\n%s", diff, notes)
			}
		})
		all.now = all.day.Add(13 * time.Hour)
		c.make(all)
		want[c.want] = true
	}
	out, _ := all.closed().books(exitDiffers, all.env(), all.day, "-json")
	got := map[string]bool{}
	for _, d := range named(t, out) {
		got[d] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all together (-want +got):\n%s", diff)
	}
	var b struct{ Received, Answered, AnswerOwed, RefundDue, Refunded, Differing struct{ Count int } }
	if err := json.Unmarshal([]byte(strings.NewReplacer("answer_owed", "AnswerOwed", "refund_due", "RefundDue").Replace(out)), &b); err != nil {
		t.Fatal(err)
	}
	if n := b.Answered.Count + b.AnswerOwed.Count + b.RefundDue.Count + b.Refunded.Count + b.Differing.Count; n != b.Received.Count {
		t.Errorf("%d received, and %d of them accounted for:\n%s", b.Received.Count, n, out)
	}
	text, _ := all.books(exitDiffers, all.env(), all.day)
	prints(t, text, "; 13 differences\n", "answered unpaid")
}
