package ledger_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestPurchases(t *testing.T) {
	ledgertest.ExercisePurchases(t, func(*testing.T) ledger.Store { return &ledgertest.Memory{} })
}

// Who is taken for the payer of a record, by what comes with the payment.
func TestVouches(t *testing.T) {
	const token, key = "t", "k"
	own := ledger.Payment{Recovered: true}
	same, other := ledger.Payment{SigDigest: "s"}, ledger.Payment{SigDigest: "x"}
	with := func(p ledger.Payment, proof ledger.Proof) ledger.Payment { p.Proof = proof; return p }
	all := map[string]ledger.Payment{
		"own key": own, "same signature": same, "other signature": other,
		"token": with(other, ledger.Proof{Token: token}), "key": with(other, ledger.Proof{Key: key}),
		"wrong token": with(own, ledger.Proof{Token: "?", Key: "?"}),
	}
	for name, c := range map[string]struct {
		record ledger.Record
		yes    []string
	}{
		"first version": {ledger.Record{SigDigest: "s", State: ledger.Redeemed}, []string{"own key", "same signature", "wrong token"}},
		"with both":     {ledger.Record{SigDigest: "s", State: ledger.Uncertain, Proof: &ledger.Proof{Token: token, Key: key}}, []string{"token", "key"}},
		"with a token":  {ledger.Record{SigDigest: "s", State: ledger.Settling, Proof: &ledger.Proof{Token: token}}, []string{"token"}},
		"without":       {ledger.Record{SigDigest: "s", State: ledger.Uncertain, Proof: &ledger.Proof{}}, []string{"own key", "same signature", "wrong token"}},
		"without, refused": {ledger.Record{SigDigest: "s", State: ledger.Refused, Proof: &ledger.Proof{}},
			[]string{"own key", "same signature", "wrong token"}},
		"without, owed":     {ledger.Record{SigDigest: "s", State: ledger.Settled, Proof: &ledger.Proof{}}, nil},
		"without, redeemed": {ledger.Record{SigDigest: "s", State: ledger.Redeemed, Proof: &ledger.Proof{}}, nil},
		"without, refunded": {ledger.Record{SigDigest: "s", State: ledger.Refunded, Proof: &ledger.Proof{}}, nil},
	} {
		want := map[string]bool{}
		for _, y := range c.yes {
			want[y] = true
		}
		for by, p := range all {
			if got := c.record.Vouches(p); got != want[by] {
				t.Errorf("%s, %s: %t", name, by, got)
			}
		}
	}
}

// What the holder of a lease can write for a purchase, and what comes of it.
func TestHoldOfAPurchase(t *testing.T) {
	const owner = "eip155:8453|0xa|0xb|0xd"
	for name, c := range map[string]struct {
		write func(*testing.T, *ledger.Hold) error
		state ledger.State
		claim ledger.Standing // a moment later
		sent  bool
		owner string
	}{
		"superseded":  {func(t *testing.T, h *ledger.Hold) error { return h.Supersede(t.Context(), owner) }, ledger.Superseded, ledger.Replaced, false, owner},
		"turned away": {func(t *testing.T, h *ledger.Hold) error { return h.TurnedAway(t.Context(), "quota") }, ledger.Refused, ledger.Held, true, ""},
		"refused":     {func(t *testing.T, h *ledger.Hold) error { return h.Refused(t.Context(), "no") }, ledger.Refused, ledger.Over, true, ""},
		"not sent":    {func(t *testing.T, h *ledger.Hold) error { return h.NotSent(t.Context(), "full") }, ledger.Refused, ledger.Held, false, ""},
	} {
		d := newTestLedger(t, nil)
		h := d.hold(t)
		if err := c.write(t, h); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r := d.state(t); r.State != c.state || r.Sent != c.sent || r.Owner != c.owner {
			t.Errorf("%s: %+v", name, r)
		}
		d.claim(t, c.claim)
	}
	// In doubt it stays in doubt, and says who has answered.
	d := newTestLedger(t, nil)
	must(t, d.hold(t).Uncertain(t.Context(), "timeout", ""))
	must(t, d.hold(t).Supersede(t.Context(), owner))
	if r := d.state(t); r.State != ledger.Uncertain || r.Owner != owner || r.Reason != "timeout" {
		t.Errorf("in doubt: %+v", r)
	}
}

// A bundle with parts that are owed can be claimed again, spaced, and answers
// meanwhile; an attempt that brought nothing better leaves the answer.
func TestPartsOwed(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.settled(t)
	owes := answer(t, "one")
	owes.Owed = []string{"whois"}
	must(t, h.RedeemUnused(t.Context(), owes))
	if r := d.state(t); r.Lookups != 0 || r.Owed() {
		t.Errorf("unused: %+v", r)
	}
	d.claim(t, ledger.Answered)
	d.clock.pass(10 * time.Second)
	h = d.hold(t)
	d.claim(t, ledger.Answered) // beside the one that looks up
	must(t, h.Keep(t.Context(), false))
	d.clock.pass(10*time.Second - 1)
	d.claim(t, ledger.Answered)
	d.clock.pass(1)
	h = d.hold(t)
	must(t, h.Redeem(t.Context(), answer(t, "two")))
	if r := d.state(t); !r.AnsweredAt.Equal(d.clock.now()) {
		t.Errorf("the complete answer is kept from %v on, and is of %v", r.AnsweredAt, d.clock.now())
	}
	d.clock.pass(time.Hour)
	if c := d.claim(t, ledger.Answered); c.Record.Lookups != 2 || len(c.Record.Answer.Owed) != 0 {
		t.Errorf("%+v", c.Record)
	}
}

// A purchase's key cannot be one of a payment, and the other way round.
func TestNotAPurchase(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.hold(t)
	_, err := d.Purchase(t.Context(), h.Record().Key)
	wants(t, ledger.ErrCorrupt, err)
	p := d.payment()
	p.Key, p.Purchase = "other", h.Record().Key
	c, err := d.Claim(t.Context(), p, d.clock.now().Add(lease))
	must(t, err)
	_, err = d.Open(t.Context(), c.Hold)
	wants(t, ledger.ErrCorrupt, err)
}
