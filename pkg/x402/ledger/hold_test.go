package ledger_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestVerdicts plays each way in which an attempt to settle can end. It checks the state after
// the end, both for a first attempt and for an attempt on a payment that was in doubt. After a
// first attempt, it also checks the result of the next claim. TestEveryStateAndEvent checks
// the other fields of the record.
func TestVerdicts(t *testing.T) {
	const owner = "eip155:8453|0xa|0xb|0xd"
	ctx := t.Context()
	const refused, doubt = ledger.Refused, ledger.Uncertain
	for name, c := range map[string]struct {
		write          func(h *ledger.Hold) error
		state          ledger.State
		stateIfDoubted ledger.State       // the resulting state if the payment was in doubt before the attempt
		claim          ledger.ClaimResult // the result of a claim that follows at once
	}{
		"superseded":  {func(h *ledger.Hold) error { return h.Supersede(ctx, owner) }, ledger.Superseded, doubt, ledger.Replaced},
		"turned away": {func(h *ledger.Hold) error { return h.End(ctx, ledger.EventTurnedAway, "quota", "") }, refused, doubt, ledger.Held},
		"refused":     {func(h *ledger.Hold) error { return h.End(ctx, ledger.EventRefused, "no", "") }, refused, doubt, ledger.Over},
		"not sent":    {func(h *ledger.Hold) error { return h.End(ctx, ledger.EventNotSent, "full", "") }, refused, doubt, ledger.Held},
		"disproved":   {func(h *ledger.Hold) error { return h.End(ctx, ledger.EventDisproved, "cancelled", "") }, refused, refused, ledger.Over},
		"uncertain":   {func(h *ledger.Hold) error { return h.End(ctx, ledger.EventUncertain, "?", "0x03") }, doubt, doubt, ledger.Held},
		"settled":     {func(h *ledger.Hold) error { return h.Settled(ctx, receipt(), false) }, ledger.Settled, ledger.Settled, ledger.Held},
		"abandoned":   {func(*ledger.Hold) error { return nil }, ledger.Settling, ledger.Settling, ledger.InFlight},
	} {
		for _, doubted := range []bool{false, true} {
			d := newTestLedger(t)
			h, want := d.hold(t), c.state
			if doubted {
				must(t, h.End(ctx, ledger.EventUncertain, "timeout", "0x02"))
				h, want = d.hold(t), c.stateIfDoubted
			}
			must(t, c.write(h))
			r := d.recorded(t)
			if r.State != want || (r.Owner == owner) != (name == "superseded") {
				t.Errorf("%s, in doubt before %t: %+v", name, doubted, r)
			}
			if doubted && want == doubt && (name != "uncertain" && r.Transaction != "0x02" || name == "superseded" && r.Reason != "timeout") {
				t.Errorf("%s, in doubt, it forgot: %+v", name, r)
			}
			if !doubted {
				d.claim(t, c.claim)
			}
		}
	}
}

// TestKept checks how long a record is kept. A decided record must be kept for 35 days after
// its authorization ends or after its last write, whichever is later. The record of a payment
// in doubt must be kept until the payment is decided. An expired record must count as absent,
// even if the store has not yet deleted it.
func TestKept(t *testing.T) {
	d := newTestLedger(t)
	must(t, d.settle(t).Release(t.Context(), timedOut()))
	d.advance(23 * time.Hour)
	must(t, d.hold(t).Redeem(t.Context(), answer(t, "x"), 0, false))
	d.advance(35*day - time.Nanosecond)
	d.recorded(t)

	d = newTestLedger(t)
	must(t, d.hold(t).End(t.Context(), ledger.EventRefused, "no", ""))
	d.advance(35*day + 5*time.Minute - time.Nanosecond)
	before := d.recorded(t)
	d.advance(time.Nanosecond)
	if r, err := d.Fetch(t.Context(), before.Key); r != nil || err != nil {
		t.Errorf("after 35 days: %+v, %v", r, err)
	}
	c := d.claim(t, ledger.Held)
	if r := c.Record; r.Attempt != 1 || r.Doubt || r.Version != before.Version+1 {
		t.Errorf("claimed again: %+v", r)
	}
	must(t, c.Hold.End(t.Context(), ledger.EventUncertain, "?", ""))
	d.advance(1000 * day)
	d.recorded(t)
}

// TestEvidenceBeatsTheLease plays a receipt that arrives late. First, an attempt loses its
// lease, and the next attempt takes the lease. Then the first attempt learns of its receipt.
// The receipt must be recorded, whatever the next attempt has written. While its lease is
// valid, the next attempt must be able to run its lookup, and no other lookup may run at the
// same time. Once its lease has ended, the next attempt must not continue from the receipt,
// because a third attempt may have begun.
func TestEvidenceBeatsTheLease(t *testing.T) {
	ctx := t.Context()
	type holdStep = func(*ledger.Hold) error
	nothing := func(*ledger.Hold) error { return nil }
	settles := func(begins bool) holdStep {
		return func(h *ledger.Hold) error { return h.Settled(ctx, receipt(), begins) }
	}
	ends := func(event ledger.Event) holdStep {
		return func(h *ledger.Hold) error { return h.End(ctx, event, "?", "") }
	}
	for name, c := range map[string]struct {
		firstStep     holdStep // what the next attempt does before the receipt arrives
		failedWrites  int      // how many writes of the next attempt fail
		lastStepDelay time.Duration
		lastStep      holdStep
		want          error              // the error that the next attempt gets after the receipt has arrived
		claim         ledger.ClaimResult // the result of the claim of a third attempt
		storesAnswer  bool               // whether the next attempt continues and stores the answer
	}{
		"settling":               {firstStep: nothing, lastStep: ends(ledger.EventRefused), want: ledger.ErrLost, claim: ledger.InFlight},
		"uncertain":              {firstStep: ends(ledger.EventUncertain), lastStep: nothing, claim: ledger.Held},
		"refused":                {firstStep: ends(ledger.EventDisproved), lastStep: nothing, claim: ledger.Held},
		"settled":                {firstStep: settles(true), lastStep: nothing, claim: ledger.InFlight, storesAnswer: true},
		"in time":                {firstStep: nothing, lastStep: settles(true), claim: ledger.InFlight, storesAnswer: true},
		"in time, not beginning": {firstStep: nothing, lastStep: settles(false), want: ledger.ErrLost, claim: ledger.InFlight},
		"too late":               {firstStep: nothing, lastStepDelay: lease, lastStep: settles(true), want: ledger.ErrLost, claim: ledger.Held},
		"after a failed write":   {firstStep: settles(true), failedWrites: 1, lastStep: nothing, claim: ledger.InFlight, storesAnswer: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			old, next := d.overtake(t)
			d.injectFault(ledgertest.Replace, ledgertest.FailBefore, c.failedWrites)
			if err := c.firstStep(next); (err != nil) != (c.failedWrites > 0) {
				t.Errorf("before: %v", err)
			}
			checkErr(t, ledger.ErrLost, settles(true)(old))
			if s := d.recorded(t); s.State != ledger.Settled || s.Receipt == nil {
				t.Fatalf("the receipt is not on record: %+v", s)
			}
			d.advance(c.lastStepDelay)
			checkErr(t, c.want, c.lastStep(next))
			d.claim(t, c.claim)
			if !c.storesAnswer {
				d.advance(lease)
				d.claim(t, ledger.Held)
				return
			}
			must(t, next.Redeem(ctx, answer(t, "x"), 0, false))
			if r := d.claim(t, ledger.Answered).Record; r.Lookups != 1 {
				t.Errorf("%d lookups", r.Lookups)
			}
		})
	}
	// If the first write of the receipt fails, and the holder repeats the write only after it has
	// lost its lease, the receipt must still be recorded.
	d := newTestLedger(t)
	old := d.hold(t)
	d.injectFault(ledgertest.Replace, ledgertest.FailBefore, 1)
	checkErr(t, ledgertest.ErrInjected, old.Settled(t.Context(), receipt(), true))
	d.advance(lease)
	d.hold(t)
	checkErr(t, ledger.ErrLost, old.Redeem(t.Context(), answer(t, "x"), 0, false))
	if s := d.recorded(t); s.State != ledger.Settled || s.Receipt == nil {
		t.Errorf("the receipt is not on record: %+v", s)
	}
	// The second attempt must not continue from the first attempt's receipt if a third attempt
	// has already done so.
	d = newTestLedger(t)
	first, second := d.overtake(t)
	checkErr(t, ledger.ErrLost, first.Settled(t.Context(), receipt(), true))
	d.advance(lease)
	third := d.hold(t)
	checkErr(t, ledger.ErrLost, second.Settled(t.Context(), receipt(), true)) // the third attempt runs the lookup
	must(t, third.Redeem(t.Context(), answer(t, "x"), 0, false))
	// A receipt that arrives after the answer must change nothing.
	before, late := d.recorded(t), receipt()
	late.Transaction = "0x02"
	checkErr(t, ledger.ErrLost, first.Settled(t.Context(), late, true))
	if r := d.recorded(t); r.State != ledger.Redeemed || r.Version != before.Version || r.Receipt.Transaction != "0x01" {
		t.Errorf("%+v", r)
	}
}

// TestLookups checks the result of each claim of a paid payment, and how many lookups are then
// counted. Lookups must be repeated, with pauses, until one gives an answer. A lookup that
// never began must not be counted and must not change the pauses; a lookup whose process ended
// must be counted. An answer that is too large to keep must be looked up again, five times in
// all. A bundle with owed parts must be looked up again for a day. During a pause, the
// bundle's stored answer must be replayed. A lookup that finds nothing better must not change
// that answer.
func TestLookups(t *testing.T) {
	const held, waiting, answered, inFlight = ledger.Held, ledger.Waiting, ledger.Answered, ledger.InFlight
	type holdStep = func(*ledger.Hold) error
	ctx := t.Context()
	gives := func(a ledger.Answer, unused bool) holdStep {
		return func(h *ledger.Hold) error {
			err := h.Redeem(ctx, a, 0, unused)
			if r := h.Record(); r.Attested() || a.Stored && !r.AnsweredAt.Equal(r.UpdatedAt) {
				t.Errorf("an answer of %v is kept from %v on", r.UpdatedAt, r.AnsweredAt)
			}
			return err
		}
	}
	fails := func(h *ledger.Hold) error { return h.Release(ctx, timedOut()) }
	pauses := func(d time.Duration) holdStep {
		return func(h *ledger.Hold) error {
			f := timedOut()
			f.Pause = d
			return h.Release(ctx, f)
		}
	}
	returns := func(h *ledger.Hold) error { return h.GiveBack(ctx) }
	keeps := func(h *ledger.Hold) error { return h.KeepAnswer(ctx, false) }
	owes, whole, large := answer(t, "one"), answer(t, "two"), ledger.Answer{Status: 200, Encoding: "gzip"}
	owes.Owed = []string{"whois"}
	for name, steps := range map[string][]lookUpStep{
		"that fail": {
			{2 * time.Second, 0, 1, fails},
			{time.Second - 1, waiting, 1, nil}, {1, held, 2, fails},
			{10*time.Second - 1, waiting, 2, nil}, {1, held, 3, fails},
			{time.Minute - 1, waiting, 3, nil}, {1, held, 4, fails},
			{10*time.Minute - 1, waiting, 4, nil}, {1, held, 5, fails},
			{20*time.Minute - 1, waiting, 5, nil}, {1, held, 6, fails},
			{40*time.Minute - 1, waiting, 6, nil}, {1, held, 7, fails},
			{time.Hour - 1, waiting, 7, nil}, {1, held, 8, fails},
			{time.Hour - 1, waiting, 8, nil}, {1, held, 9, fails}, {100 * day, held, 10, nil},
		},
		"that say when": {
			{0, 0, 1, pauses(time.Minute)}, {time.Minute - 1, waiting, 1, nil}, {1, held, 2, pauses(time.Second)},
			{time.Second - 1, waiting, 2, nil}, {1, held, 3, fails}, {time.Minute - 1, waiting, 3, nil}, {1, held, 4, nil},
		},
		"that end with their process": {
			{lease, held, 2, nil}, {lease, held, 3, nil}, {lease, waiting, 3, nil}, {lease, held, 4, fails}, {10 * time.Minute, held, 5, nil},
		},
		"that never begin": {
			{0, 0, 1, fails}, {time.Second, held, 1, returns}, {0, held, 1, returns},
			{day - time.Second, held, 1, returns}, {time.Second, held, 2, nil},
		},
		"of a large answer": {
			{0, 0, 1, gives(large, false)}, {0, waiting, 1, nil}, {time.Minute, held, 2, nil}, {0, inFlight, 2, nil},
			{day, ledger.Over, 2, nil}, {0, 0, 2, gives(whole, false)}, {0, answered, 2, nil},
		},
		"of a large answer, again and again": {
			{0, 0, 1, fails}, {time.Second, held, 2, fails}, {10 * time.Second, held, 1, gives(large, false)},
			{time.Second, held, 2, gives(large, false)}, {10 * time.Second, held, 3, gives(large, false)}, {time.Minute, held, 4, gives(large, false)},
			{10 * time.Minute, held, 5, gives(large, false)}, {time.Hour, ledger.Over, 5, nil},
		},
		"of owed parts": {
			{0, 0, 0, gives(owes, true)}, {0, answered, 0, nil},
			{10 * time.Second, held, 1, nil}, {0, answered, 1, keeps}, // while the lookup runs, a repeat gets the stored answer
			{10*time.Second - 1, answered, 1, nil}, {1, held, 2, gives(whole, false)}, {time.Hour, answered, 2, nil},
		},
		"of parts that stay owed": {
			{0, 0, 1, gives(owes, false)}, {10 * time.Second, held, 2, keeps}, {day - 11*time.Second, held, 3, keeps}, {time.Second, answered, 3, nil},
			{time.Minute, ledger.Over, 3, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestLedger(t)
			h := d.settle(t)
			for i, s := range steps {
				h = d.lookUpStep(t, fmt.Sprint("step ", i), s, h)
			}
		})
	}
}

// lookUpStep is one step of TestLookups: the clock moves forward, the payment is claimed, and
// a function is called. The claim and the function may be left out. lookups is the number of
// lookups that must be counted at the end.
type lookUpStep struct {
	after   time.Duration
	claim   ledger.ClaimResult // the wanted result; 0 if there is no claim
	lookups int
	lookUp  func(*ledger.Hold) error // called after the claim, with the hold that the step returns
}

// lookUpStep runs one step. h is the hold of the last attempt that got the lease. If the
// step's claim gets a new hold, lookUpStep returns the new hold. Otherwise it returns h.
func (d *testLedger) lookUpStep(t *testing.T, what string, s lookUpStep, h *ledger.Hold) *ledger.Hold {
	t.Helper()
	d.advance(s.after)
	if s.claim != 0 {
		c := d.claim(t, s.claim)
		if c.Hold != nil {
			h = c.Hold
		}
		if s.claim == ledger.Waiting && !d.clock.Add(c.Wait).Equal(c.Record.LookupAt.Add(ledger.NextLookup(c.Record))) {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if s.lookUp != nil {
		must(t, s.lookUp(h))
	}
	if r := d.recorded(t); r.Lookups != s.lookups {
		t.Errorf("%s: %+v", what, r)
	}
	return h
}

// TestReturn checks a payment that is settled, but whose lookup does not begin. Its record
// must have no lease and no counted lookup. A GiveBack after that must write nothing.
func TestReturn(t *testing.T) {
	d := newTestLedger(t)
	h := d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), false))
	before := d.recorded(t)
	must(t, h.GiveBack(t.Context()))
	if s := d.recorded(t); !s.LeaseUntil.IsZero() || s.Lookups != 0 || !h.Released() || s.Version != before.Version {
		t.Errorf("%+v after %+v", s, before)
	}
	if c := d.claim(t, ledger.Held); c.Record.Lookups != 1 || d.Unclaimed(c.Record) || !d.Unclaimed(before) {
		t.Errorf("%+v", c.Record)
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	l := ledger.New(&ledgertest.Memory{}, time.Now, rand.Text)
	noise := make([]byte, 2*ledger.LargestKept)
	rand.Read(noise)
	for what, long := range map[string][]byte{"does not compress to 1 MB": noise, "is longer than what is read back": make([]byte, 8<<20+1)} {
		if a, err := l.NewAnswer(200, long); err != nil || a.Stored || a.Body != nil {
			t.Errorf("an answer that %s is stored: %v", what, err)
		}
	}
	for _, body := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("x"), 1<<20)} {
		a, err := l.NewAnswer(404, body)
		must(t, err)
		if got, err := a.Plain(); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	}
	if got, err := (ledger.Answer{Stored: true, Body: []byte("as it is")}).Plain(); err != nil || string(got) != "as it is" {
		t.Errorf("an answer that is not compressed: %q, %v", got, err)
	}
	whole := answer(t, strings.Repeat("cut short", 100))
	whole.Body = whole.Body[:len(whole.Body)-4]
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(make([]byte, 8<<20+1))
	must(t, errors.Join(err, z.Close()))
	for _, bad := range []ledger.Answer{{}, whole, {Stored: true, Encoding: "gzip", Body: zipped.Bytes()}, {Stored: true, Encoding: "gzip", Body: []byte("junk")}} {
		if _, err := bad.Plain(); err == nil {
			t.Errorf("%+v has no error", bad)
		}
	}
}
