package ledger

import (
	"errors"
	"maps"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// moves maps each event that may happen in a situation to the state that follows.
type moves = map[Event]State

func withMove(m moves, event Event, to State) moves {
	m = maps.Clone(m)
	m[event] = to
	return m
}

// situation is a record with everything on which an edge can depend. legalMoves has the events
// that may happen to it; all other events are illegal.
type situation struct {
	name string
	Payment
	legalMoves moves
}

func situations() []situation {
	live, past := epoch.Add(time.Minute), epoch.Add(-time.Minute)
	ended := moves{
		EventSettled: Settled, EventRefused: Refused, EventBadSignature: Refused, EventTurnedAway: Refused, EventDisproved: Refused, EventNotSent: Refused,
		EventUncertain: Uncertain, EventSupersede: Superseded,
	}
	doubted := moves{
		EventSettled: Settled, EventRefused: Uncertain, EventBadSignature: Uncertain, EventTurnedAway: Uncertain, EventDisproved: Refused, EventNotSent: Uncertain,
		EventUncertain: Uncertain,
	}
	running := moves{EventRedeem: Redeemed, EventRelease: Settled}
	dueBack := moves{EventRelease: Settled, EventRefund: Refunded, EventSendBack: Settled, EventAttest: Redeemed}
	owed := withMove(withMove(dueBack, EventClaim, Settled), EventRedeem, Redeemed)
	incomplete := moves{EventClaim: Redeemed, EventRedeem: Redeemed, EventRelease: Redeemed}
	all := []situation{
		{"settling, live", Payment{State: Settling, LeaseUntil: live}, withMove(ended, EventAsk, Settling)},
		{"settling, live, in doubt", Payment{State: Settling, LeaseUntil: live, Doubt: true, Sent: true}, withMove(doubted, EventAsk, Settling)},
		{"settling, past", Payment{State: Settling, LeaseUntil: past}, withMove(ended, EventClaim, Settling)},
		{"settling, abandoned doubt", Payment{State: Settling, LeaseUntil: past, Doubt: true, Sent: true}, withMove(doubted, EventClaim, Settling)},
		{"uncertain", Payment{State: Uncertain, Doubt: true, Sent: true}, moves{EventClaim: Settling, EventSettled: Settled}},
		{"refused", Payment{State: Refused}, moves{EventClaim: Settling, EventSettled: Settled, EventSupersede: Superseded}},
		{"refused, disproved", Payment{State: Refused, Disproved: true}, moves{EventSettled: Settled, EventSupersede: Superseded}},
		{"superseded", Payment{State: Superseded}, moves{EventSettled: Settled}},
		{"settled, live", Payment{State: Settled, LeaseUntil: live}, running},
		{"settled, released", Payment{State: Settled}, owed},
		{"settled, lookup cut off", Payment{State: Settled, LeaseUntil: past}, owed},
		{"settled, due back", Payment{State: Settled, DueBack: DueUnasked}, dueBack},
		{"settled, refund begun", Payment{State: Settled, SendingBack: &SendingBack{By: "o"}}, withMove(dueBack, EventWithdraw, Settled)},
		{"redeemed", Payment{State: Redeemed, Answer: &Answer{Stored: true}}, nil},
		{"redeemed, without a body", Payment{State: Redeemed, Answer: &Answer{}}, incomplete},
		{"redeemed, bodyless, live", Payment{State: Redeemed, Answer: &Answer{}, LeaseUntil: live}, incomplete},
		{"redeemed, parts owed", Payment{State: Redeemed, Answer: &Answer{Stored: true, Owed: []string{"ssl"}}}, incomplete},
	}
	for _, state := range []State{Refunded, "paid"} {
		all = append(all, situation{string(state), Payment{State: state}, nil})
	}
	for i := range all {
		r := &all[i].Payment
		r.Key, r.Token, r.Version, r.WriteID, r.Attempt, r.Lookups = "k", "t", 7, "w", 1, 1
		r.ValidBefore, r.LookupAt, r.SettledAt = epoch.Add(time.Hour), past, past
	}
	return all
}

func TestEveryStateAndEvent(t *testing.T) {
	c := Change{now: epoch, leaseUntil: epoch.Add(time.Minute), receipt: &Receipt{Transaction: "0x1"}, Reason: "r", answer: &Answer{}, failure: &Failure{}}
	seen, events := map[State]bool{}, map[Event]bool{}
	for _, e := range edges() {
		for _, ev := range e.Events {
			events[ev] = true
		}
	}
	for _, r := range situations() {
		seen[r.State] = true
		checkRecord(t, r)
		for ev := range events {
			key := r.name + "/" + string(ev)
			next, err := NewRules().step(r.Payment, ev, c)
			switch want, ok := r.legalMoves[ev]; {
			case !ok && !errors.Is(err, ErrIllegal):
				t.Errorf("%s: %v to %s, want illegal", key, err, next.State)
			case ok && (err != nil || next.State != want):
				t.Errorf("%s: %s, %v; want %s", key, next.State, err, want)
			case ok:
				checkStep(t, key, r.Payment, next, ev)
			}
		}
	}
	for _, state := range States() {
		if !seen[state] {
			t.Errorf("there is no situation in state %s", state)
		}
	}
}

// checkRecord checks that Unasked and Listed are right for a record in a situation.
func checkRecord(t *testing.T, r situation) {
	t.Helper()
	owed := r.State == Settled
	list := map[State]string{Settling: ListOpen, Uncertain: ListOpen, Settled: ListOwed}[r.State]
	if owed && r.LeaseUntil.After(r.UpdatedAt) {
		list = ListOpen
	}
	in, _ := r.Listed()
	for what, wrong := range map[string]bool{
		"came unasked": r.Unasked() != (r.DueBack == DueUnasked),
		"its list":     in != list,
	} {
		if wrong {
			t.Errorf("%s: %s: %+v", r.name, what, r.Payment)
		}
	}
}

// checkStep checks the rules that hold for every event. For example, only evidence may clear a
// payment's doubt. old and next are the record before and after the event ev.
func checkStep(t *testing.T, key string, old, next Payment, ev Event) {
	t.Helper()
	told := ev == EventRefused || ev == EventBadSignature || ev == EventTurnedAway || ev == EventUncertain
	refused := next.State == Refused && (ev == EventRefused || ev == EventBadSignature)
	expires := old.ValidBefore.Add(paymentRetention)
	if next.State == Settling || next.State == Uncertain || next.State == Settled {
		expires = time.Time{}
	}
	for what, wrong := range map[string]bool{
		"the version":                        next.Version != old.Version+1,
		"doubt was cleared without evidence": old.Doubt && !next.Doubt && ev != EventSettled && ev != EventDisproved,
		"refused and in doubt":               next.State == Refused && next.Doubt,
		"uncertain without doubt":            next.State == Uncertain && !next.Doubt,
		"settled without a receipt":          ev == EventSettled && next.Receipt == nil,
		"disproved":                          next.Disproved != (ev == EventDisproved || ev == EventSupersede && old.Disproved),
		"what may have been sent":            next.Sent != (old.Sent || told || ev == EventClaim && old.State == Settling),
		"refusals that are counted":          (next.Refusals > 0) != refused || next.BadSignature != (refused && ev == EventBadSignature),
		"the end":                            !next.ExpiresAt.Equal(expires),
	} {
		if wrong {
			t.Errorf("%s: %s: %+v", key, what, next)
		}
	}
}
