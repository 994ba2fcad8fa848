package ledger_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// What the holder of a lease can write, what comes of it at first and in doubt, what
// the next claim is told, and how long it is kept: what is in doubt, or paid and not
// answered, until that ends; what is decided for 35 days after its authorization.
func TestVerdicts(t *testing.T) {
	const owner = "eip155:8453|0xa|0xb|0xd"
	ctx := t.Context()
	const refused, doubt = ledger.Refused, ledger.Uncertain
	for name, c := range map[string]struct {
		write   func(h *ledger.Hold) error
		state   ledger.State
		doubted ledger.State    // where the payment was in doubt
		claim   ledger.Standing // a moment later
		sent    bool
		kept    bool // without an end
	}{
		"superseded":  {func(h *ledger.Hold) error { return h.Supersede(ctx, owner) }, ledger.Superseded, doubt, ledger.Replaced, false, false},
		"turned away": {func(h *ledger.Hold) error { return h.TurnedAway(ctx, "quota") }, refused, doubt, ledger.Held, true, false},
		"refused":     {func(h *ledger.Hold) error { return h.Refused(ctx, "no") }, refused, doubt, ledger.Over, true, false},
		"not sent":    {func(h *ledger.Hold) error { return h.NotSent(ctx, "full") }, refused, doubt, ledger.Held, false, false},
		"disproved":   {func(h *ledger.Hold) error { return h.Disproved(ctx, "cancelled") }, refused, refused, ledger.Over, false, false},
		"uncertain":   {func(h *ledger.Hold) error { return h.Uncertain(ctx, "?", "0x03") }, doubt, doubt, ledger.Held, true, true},
		"settled":     {func(h *ledger.Hold) error { return h.Settled(ctx, receipt(), false) }, ledger.Settled, ledger.Settled, ledger.Held, false, true},
		"abandoned":   {func(*ledger.Hold) error { return nil }, ledger.Settling, ledger.Settling, ledger.InFlight, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			p, h := d.payment(), d.hold(t)
			must(t, c.write(h))
			if r := d.state(t); r.State != c.state || r.Sent != c.sent || (r.Owner == owner) != (name == "superseded") {
				t.Errorf("%+v", r)
			}
			first := d.record(t, p.Key)
			d.pass(p.ValidBefore.Sub(d.at) + 35*day - time.Nanosecond)
			d.state(t)
			d.pass(time.Nanosecond)
			if r, err := d.Fetch(t.Context(), p.Key); (r != nil) != c.kept || err != nil {
				t.Errorf("after 35 days: %+v, %v", r, err)
			}
			if c.kept {
				d.pass(1000 * day)
				d.state(t)
			} else if again := d.claim(t, ledger.Held).Record; again.Attempt != 1 || again.Doubt || again.Version != first.Version+1 {
				t.Errorf("what stores delete late is not absent: %+v", again)
			}

			d = newTestLedger(t)
			must(t, c.write(d.hold(t)))
			if got := d.claim(t, c.claim); got.Record.Reason == "cancelled" && got.Record.Version != 2 {
				t.Errorf("what evidence refused was written again: %+v", got.Record)
			}

			d = newTestLedger(t)
			must(t, d.hold(t).Uncertain(t.Context(), "timeout", "0x02"))
			if r := d.state(t); r.State != ledger.Uncertain || r.Transaction != "0x02" {
				t.Fatalf("%+v", r)
			}
			must(t, c.write(d.hold(t)))
			r := d.state(t)
			if r.State != c.doubted || r.Doubt != (name != "disproved") || (r.Owner == owner) != (name == "superseded") {
				t.Errorf("in doubt: %+v", r)
			}
			if c.doubted == ledger.Uncertain && name != "uncertain" && r.Transaction != "0x02" || name == "superseded" && r.Reason != "timeout" {
				t.Errorf("in doubt, it forgot: %+v", r)
			}
		})
	}
	// A decided one is kept from its last write on.
	d := newTestLedger(t)
	must(t, d.settled(t).Release(t.Context(), timedOut()))
	d.pass(23 * time.Hour)
	must(t, d.hold(t).Redeem(t.Context(), answer(t, "x")))
	d.pass(35*day - time.Nanosecond)
	d.state(t)
}

// A receipt that comes too late for the lease is recorded all the same, whatever the
// next attempt has made of the payment.
func TestEvidenceBeatsTheLease(t *testing.T) {
	for name, other := range map[string]func(h *ledger.Hold) error{
		"settling":  func(*ledger.Hold) error { return nil },
		"uncertain": func(h *ledger.Hold) error { return h.Uncertain(t.Context(), "?", "") },
		"refused":   func(h *ledger.Hold) error { return h.Disproved(t.Context(), "wrongly") },
		"settled":   func(h *ledger.Hold) error { return h.Settled(t.Context(), receipt(), true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			old, taken := d.overtaken(t)
			must(t, other(taken))
			wants(t, ledger.ErrLost, old.Settled(t.Context(), receipt(), true))
			s := d.state(t)
			if s.State != ledger.Settled || s.Receipt == nil {
				t.Fatalf("the receipt is not on record: %+v", s)
			}
			switch name {
			case "settled": // its holder looks up
			case "settling":
				// The live attempt keeps its lease, nobody runs beside it, and
				// a refusal of its own does not overwrite the receipt.
				d.claim(t, ledger.InFlight)
				wants(t, ledger.ErrLost, taken.Refused(t.Context(), "no"))
				d.pass(lease)
				d.claim(t, ledger.Held)
			default:
				if got := d.claim(t, ledger.Held); !s.LeaseUntil.IsZero() || got.Record.State != ledger.Settled {
					t.Errorf("the retry is not owed: %+v after %+v", got.Record, s)
				}
			}
		})
	}
	// So is one whose first write failed and came too late, when its holder goes on.
	d := newTestLedger(t)
	old := d.hold(t)
	d.fails(ledgertest.Replace, ledgertest.FailBefore, 1)
	wants(t, ledgertest.ErrInjected, old.Settled(t.Context(), receipt(), true))
	d.pass(lease)
	d.hold(t)
	wants(t, ledger.ErrLost, old.Redeem(t.Context(), answer(t, "x")))
	if s := d.state(t); s.State != ledger.Settled || s.Receipt == nil {
		t.Errorf("the receipt is not on record: %+v", s)
	}
}

// An attempt that finds its own receipt on record already goes on, within its lease:
// the lookup that it began counts, and nobody runs beside it. Afterwards it goes on from
// nobody's evidence: the next claim may have begun.
func TestAdopts(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int // writes of the settlement that fail before the receipt is on record
		late   time.Duration
		begins bool
		want   error
	}{
		"in time":                {0, 0, true, nil},
		"in time, not beginning": {0, 0, false, ledger.ErrLost},
		"too late":               {0, lease, true, ledger.ErrLost},
		"after a failed write":   {1, 0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			old, taken := d.overtaken(t)
			if d.fails(ledgertest.Replace, ledgertest.FailBefore, c.fails); c.fails > 0 {
				wants(t, ledgertest.ErrInjected, taken.Settled(t.Context(), receipt(), true))
			}
			wants(t, ledger.ErrLost, old.Settled(t.Context(), receipt(), true))
			d.pass(c.late)
			if c.fails == 0 {
				wants(t, c.want, taken.Settled(t.Context(), receipt(), c.begins))
			}
			if c.want != nil {
				return
			}
			d.claim(t, ledger.InFlight)
			must(t, taken.Redeem(t.Context(), answer(t, "x")))
			if r := d.claim(t, ledger.Answered).Record; r.Lookups != 1 {
				t.Errorf("%d lookups", r.Lookups)
			}
		})
	}
	// Nor from evidence that a third attempt has gone on from already.
	d := newTestLedger(t)
	first, second := d.overtaken(t)
	wants(t, ledger.ErrLost, first.Settled(t.Context(), receipt(), true))
	d.pass(lease)
	third := d.hold(t)
	wants(t, ledger.ErrLost, second.Settled(t.Context(), receipt(), true)) // it would go on beside the third
	must(t, third.Redeem(t.Context(), answer(t, "x")))
	// A receipt that comes when the answer is there already changes nothing.
	before, late := d.state(t), receipt()
	late.Transaction = "0x02"
	wants(t, ledger.ErrLost, first.Settled(t.Context(), late, true))
	if r := d.state(t); r.State != ledger.Redeemed || r.Version != before.Version || r.Receipt.Transaction != "0x01" {
		t.Errorf("%+v", r)
	}
}

// Evidence is written against two other writers, and not for ever. The first
// of those here comes before the write that finds the lease lost.
func TestEvidenceAgainstWriters(t *testing.T) {
	for others, want := range map[int]error{0: ledger.ErrLost, 3: ledger.ErrLost, 4: ledger.ErrConflict} {
		d := newTestLedger(t)
		old, taken := d.overtaken(t)
		must(t, taken.Uncertain(t.Context(), "?", ""))
		// The first write of the old holder is on a version that is gone.
		wants(t, ledger.ErrLost, old.Refused(t.Context(), "no"))
		left := others
		d.decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if op == ledgertest.Replace && r.State == ledger.Settled && left > 0 {
				left--
				must(t, d.hold(t).Uncertain(t.Context(), "?", "")) // it comes first
			}
			return ledgertest.None
		}
		wants(t, want, old.Settled(t.Context(), receipt(), true))
		if r := d.state(t); (r.State == ledger.Settled) != (others < 4) {
			t.Errorf("%d other writers: %s", others, r.State)
		}
	}
}
