package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// shop is a ledger and the chain of a day that is over.
type shop struct {
	*buyer
	store *embedded.Store
	path  string
	day   time.Time
	moved []x402test.Transfer
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{path: t.TempDir() + "/ledger.db", day: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)}
	var err error
	if s.store, err = embedded.Open(s.path, embedded.Options{}); err != nil {
		t.Fatal(err)
	}
	s.buyer = newBuyer(t, s.store, s.day.Add(12*time.Hour))
	s.terms = termsOf(t, payee, "5000")
	return s
}

func termsOf(t *testing.T, payTo, amount string) json.RawMessage {
	t.Helper()
	terms, err := json.Marshal(x402.Terms{Network: "eip155:8453", Asset: asset, PayTo: payTo, Name: "USD Coin", Version: "2"}.Requirements(amount))
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func txOf(n int) string { return fmt.Sprintf("0x%064x", 0x7700+n) }

// move lets payment n move an amount at the shop's time.
func (s *shop) move(n int, value string) {
	s.moved = append(s.moved, x402test.Transfer{Key: keyOf(n), Transaction: txOf(n), Payee: payee, Value: value, At: s.now})
}

// settled is a payment that the ledger knows to be made.
func (s *shop) settled(n int) *ledger.Hold {
	s.t.Helper()
	h := s.claim(keyOf(n))
	s.must(h.Settled(s.t.Context(), ledger.Receipt{Transaction: txOf(n), Payer: payer, Network: "eip155:8453"}, true))
	return h
}

func (s *shop) answer(h *ledger.Hold) {
	s.t.Helper()
	s.must(h.Redeem(s.t.Context(), ledger.Answer{Status: 200, Stored: true, Encoding: "gzip", Body: []byte("x")}))
}

// exhausted uses up a payment's lookups.
func (s *shop) exhausted(n int) {
	s.t.Helper()
	at, h := s.now, s.settled(n)
	for i := range ledger.MaxLookups {
		if i > 0 {
			s.now = s.now.Add(15 * time.Minute)
			h = s.claim(keyOf(n))
		}
		s.must(h.Release(s.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	}
	s.now = at
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
		s.answer(s.settled(n))
	}
	s.move(4, "5000")
	s.must(s.settled(4).Release(s.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	s.move(5, "5000")
	s.exhausted(5)
	s.move(6, "5000")
	s.exhausted(6)
	s.refund(6, "5000")
	s.must(s.claim(keyOf(7)).Uncertain(s.t.Context(), "timeout", ""))
	s.must(s.claim(keyOf(8)).Refused(s.t.Context(), "insufficient_funds"))
	s.moved = append(s.moved, x402test.Transfer{Key: ledger.Key("eip155:8453", asset, sender, ""), Transaction: txOf(9), Payee: payee, Value: "77", At: s.now})
	// The last second of the day, recorded on the next; and the first, which the
	// service's clock recorded on the day before.
	s.now = s.day.Add(24*time.Hour - time.Second)
	s.move(10, "5000")
	s.now = s.now.Add(2 * time.Second)
	s.answer(s.settled(10))
	s.now = s.day
	s.move(11, "5000")
	s.now = s.day.Add(-time.Second)
	s.answer(s.settled(11))
	// The days before and after.
	s.move(12, "5000")
	s.answer(s.settled(12))
	s.now = s.day.Add(24 * time.Hour)
	s.move(13, "5000")
	s.answer(s.settled(13))
	// Found by reconcile on this day, moved two days before; and another payee's.
	s.now = s.day.Add(-48 * time.Hour)
	h := s.claim(keyOf(14))
	s.move(14, "5000")
	s.now = s.day.Add(12 * time.Hour)
	s.must(h.Settled(s.t.Context(), ledger.Receipt{Transaction: txOf(14), Payer: payer, Network: "eip155:8453"}, false))
	ours := s.terms
	s.terms = termsOf(s.t, sender, "5000")
	s.answer(s.settled(15))
	// Money with the nonce of a payment that was refused, which has a record of its
	// own.
	s.terms = ours
	s.must(s.claim(keyOf(16)).Refused(s.t.Context(), "insufficient_funds"))
	s.move(16, "6000")
	s.testify(16, "6000")
}

// testify records a transfer as reconcile does.
func (s *shop) testify(n int, value string) {
	s.t.Helper()
	_, err := s.Testify(s.t.Context(), ledger.Witness{
		Key: keyOf(n), Terms: termsOf(s.t, payee, value), At: s.now, Receipt: ledger.Receipt{Transaction: txOf(n), Payer: payer, Network: "eip155:8453"},
		Of: func(r ledger.Record) bool { return strings.Contains(string(r.Terms), value) },
	})
	s.must(err)
}

// node serves the shop's chain.
func (s *shop) node() string {
	s.t.Helper()
	n := httptest.NewServer(chaintest.PlayNode{
		Moved: func() []x402test.Transfer { return s.moved }, ChainID: 8453, Now: time.Now, Safe: time.Minute,
	})
	s.t.Cleanup(n.Close)
	return n.URL
}

func (s *shop) env() map[string]string {
	return map[string]string{"LEDGER_FILE": s.path, "RPC_URL": s.node(), "PAY_TO": payee}
}

// closed ends the shop's use of its file.
func (s *shop) closed() *shop {
	s.t.Helper()
	s.must(s.store.Close())
	return s
}

// An honest day has no differences: every payment is counted once, on the day on
// which its money moved.
func TestBooks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.honest()
	s.closed()
	day := s.day.Format(time.DateOnly)
	out, notes := command(t, 0, s.env(), "-books", day)
	out = regexp.MustCompile(`(?m)^chain   127\.0\.0\.1:\d+$`).ReplaceAllString(out, "chain   N")
	want := `books   ` + day + `, UTC, the whole day
ledger  ` + s.path + `, 16 records
chain   N
token   0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 on eip155:8453
payee   ` + payee + `

              PAYMENTS  AMOUNT     (ATOMIC UNITS)
received      9         $0.046     (46000)
  answered    5         $0.025     (25000)
    dns       5         $0.025     (25000)
  refund due  3         $0.016     (16000)
  refunded    1         $0.005     (5000)
deposits      1         $0.000077  (77)
refunds made  1         $0.005     (5000)
in doubt      1         $0.005     (5000)

1 record recorded on this day moved at another time: in the books of that day
1 record recorded on this day under another network, token or payee: not compared

total   5 answers sold for $0.025, $0.046 received in 9 payments; no differences
`
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("printed (-want +got):\n%s\n%s", diff, notes)
	}
	for _, offset := range []int{-1, 1} {
		out, _ := command(t, 0, s.env(), "-books", s.day.AddDate(0, 0, offset).Format(time.DateOnly))
		if !strings.Contains(out, "total   1 answer sold for $0.005, $0.005 received in 1 payment; no differences\n") {
			t.Errorf("the books of day %+d:\n%s", offset, out)
		}
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
	cases := map[string]struct {
		make func(*shop)
		want string
	}{
		"nobody has a record of it": {func(s *shop) { s.move(0x101, "5000") },
			"101 transfer_without_record  received 5000 recorded"},
		"it was refused": {func(s *shop) {
			s.must(s.claim(keyOf(0x102)).Refused(s.t.Context(), "insufficient_funds"))
			s.move(0x102, "5000")
		}, "102 transfer_not_recorded refused received 5000 recorded 5000"},
		"it is in doubt": {func(s *shop) {
			s.must(s.claim(keyOf(0x103)).Uncertain(s.t.Context(), "timeout", ""))
			s.move(0x103, "5000")
		}, "103 transfer_not_recorded in_doubt received 5000 recorded 5000"},
		"it was answered for nothing": {func(s *shop) { s.answer(s.settled(0x104)) },
			"104 answered_unpaid answered received  recorded 5000"},
		"it is owed for nothing": {func(s *shop) {
			s.must(s.settled(0x105).Release(s.t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
		}, "105 settled_without_transfer refund_due received  recorded 5000"},
		"too little came": {func(s *shop) {
			s.move(0x106, "4999")
			s.answer(s.settled(0x106))
		}, "106 amounts_differ answered received 4999 recorded 5000"},
		"its nonce paid something else": {func(s *shop) {
			s.answer(s.settled(0x107))
			s.move(0x107, "6000")
			s.testify(0x107, "6000")
		}, "107 answered_unpaid answered received  recorded 5000"},
		"it names another's transaction": {func(s *shop) {
			h := s.claim(keyOf(0x108))
			s.must(h.Settled(s.t.Context(), ledger.Receipt{Transaction: txOf(1), Payer: payer, Network: "eip155:8453"}, true))
			s.answer(h)
		}, "108 answered_unpaid answered received  recorded 5000"},
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
			s.closed()
			out, notes := command(t, exitDiffers, s.env(), "-books", s.day.Format(time.DateOnly), "-json")
			if diff := cmp.Diff([]string{c.want}, named(t, out)); diff != "" || notes != errDifferences.Error()+"\n" {
				t.Errorf("differences (-want +got):\n%s\n%s", diff, notes)
			}
		})
		all.now = all.day.Add(13 * time.Hour)
		c.make(all)
		want[c.want] = true
	}
	all.closed()
	out, _ := command(t, exitDiffers, all.env(), "-books", all.day.Format(time.DateOnly), "-json")
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
	if text, _ := command(t, exitDiffers, all.env(), "-books", all.day.Format(time.DateOnly)); !strings.Contains(text, "; 11 differences\n") || !strings.Contains(text, "answered unpaid") {
		t.Errorf("printed:\n%s", text)
	}
}
