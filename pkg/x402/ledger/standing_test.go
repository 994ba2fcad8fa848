package ledger

import (
	"testing"
	"time"
)

// TestStandings checks the standing of a record in each situation, at different times, with
// and without a node. Each standing must occur, and each must have a meaning.
func TestStandings(t *testing.T) {
	live, past := epoch.Add(time.Minute), epoch.Add(-time.Minute)
	timedOut := func(silent bool) *Failure { return &Failure{Code: "ssl_timeout", Silence: silent} }
	refused := Payment{State: Refused, Sent: true, RefusedAt: epoch.Add(-time.Hour), ValidBefore: epoch.Add(-10*time.Minute - 1)}
	inDoubt, recent, early := refused, refused, refused
	inDoubt.Doubt = true
	recent.RefusedAt, recent.Refusals = epoch.Add(-time.Second+1), 1
	early.ValidBefore = epoch.Add(-10 * time.Minute)
	owed := func(r Payment) Payment {
		r.State = Settled
		if r.SettledAt.IsZero() {
			r.SettledAt = past
		}
		return r
	}
	answered := func(a Answer, r Payment) Payment {
		r.State, r.Answer = Redeemed, &a
		if r.AnsweredAt.IsZero() {
			r.AnsweredAt = past
		}
		return r
	}
	kept, large, part := Answer{Stored: true}, Answer{}, Answer{Stored: true, Owed: []string{"ssl"}}
	longAgo := epoch.Add(-24*time.Hour - 1)
	seen := map[Standing]bool{StandingMissing: Stand(nil, View{}) == StandingMissing}
	for _, c := range []struct {
		name string
		r    Payment
		node bool
		want Standing
	}{
		{"an attempt holds it", Payment{State: Settling, LeaseUntil: live}, true, StandingInFlight},
		{"its attempt died", Payment{State: Settling, LeaseUntil: past, Purchase: "p"}, true, StandingPerhapsUnsent},
		{"its attempt died, and it has no purchase", Payment{State: Settling, LeaseUntil: past}, true, StandingInDoubt},
		{"its attempt died after a send", Payment{State: Settling, LeaseUntil: past, Purchase: "p", Sent: true}, true, StandingInDoubt},
		{"uncertain", Payment{State: Uncertain}, true, StandingInDoubt},
		{"never sent", Payment{State: Refused}, true, StandingUnsent},
		{"refused a moment ago", recent, true, StandingJustRefused},
		{"refused, with a node", refused, true, StandingRefused},
		{"refused, without one", refused, false, StandingRefusalOver},
		{"refused, without one, a moment before", early, false, StandingRefused},
		{"refused in doubt, without one", inDoubt, false, StandingRefused},
		{"disproved", Payment{State: Refused, Sent: true, Disproved: true}, true, StandingDisproved},
		{"superseded", Payment{State: Superseded}, true, StandingSuperseded},
		{"superseded after a proof", Payment{State: Superseded, Sent: true, Disproved: true}, true, StandingSuperseded},
		{"superseded after a send", Payment{State: Superseded, Sent: true}, true, StandingSupersededSent},
		{"looked up now", owed(Payment{LeaseUntil: live, Lookups: 1}), true, StandingRunning},
		{"owed", owed(Payment{}), true, StandingOwed},
		{"owed, too early", owed(Payment{Lookups: 1, LookupAt: epoch.Add(1 - time.Second)}), true, StandingOwedLater},
		{"owed for a day", owed(Payment{SettledAt: epoch.Add(-24 * time.Hour)}), true, StandingOwed},
		{"owed for longer", owed(Payment{SettledAt: longAgo}), true, StandingOverdue},
		{"owed for longer, too early", owed(Payment{SettledAt: longAgo, Lookups: 1, LookupAt: epoch}), true, StandingOverdueLater},
		{"silent four times", owed(Payment{Lookups: 4, Silent: 4, LastFault: timedOut(true)}), true, StandingOwed},
		{"silent five times", owed(Payment{Lookups: 9, Silent: 5, LastFault: timedOut(true)}), true, StandingSilent},
		{"silent for a day", owed(Payment{SettledAt: longAgo, Lookups: 2, Silent: 2, LastFault: timedOut(true)}), true, StandingSilent},
		{"silent once in a day", owed(Payment{SettledAt: longAgo, Lookups: 3, Silent: 2, LastFault: timedOut(true)}), true, StandingOverdue},
		{"silent, and looked up now", owed(Payment{Lookups: 5, Silent: 5, LeaseUntil: live, LastFault: timedOut(true)}), true, StandingRunning},
		{"silent, and died then", owed(Payment{Lookups: 9, Silent: 5, LeaseUntil: past, LastFault: timedOut(true)}), true, StandingOwed},
		{"silent, and failed on our side last", owed(Payment{Lookups: 6, Silent: 5, LastFault: timedOut(false)}), true, StandingOwed},
		{"one lookup left", owed(Payment{Lookups: 1, MostLookups: 2}), true, StandingOwed},
		{"no lookup left", owed(Payment{Lookups: 2, MostLookups: 2}), true, StandingExhausted},
		{"no lookup left, and looked up now", owed(Payment{Lookups: 2, MostLookups: 2, LeaseUntil: live}), true, StandingRunning},
		{"came unasked", owed(Payment{DueBack: DueUnasked}), true, StandingDueBack},
		{"answered otherwise, and held", owed(Payment{DueBack: DueElsewhere, LeaseUntil: live}), true, StandingDueBack},
		{"refund begun", owed(Payment{SendingBack: &SendingBack{}, Silent: 5, Lookups: 5, LastFault: timedOut(true)}), true, StandingSendingBack},
		{"refund begun by a clock that is ahead", owed(Payment{SendingBack: &SendingBack{}, LeaseUntil: live}), true, StandingSendingBack},
		{"answered", answered(kept, Payment{}), true, StandingAnswered},
		{"answered a day ago", answered(kept, Payment{AnsweredAt: epoch.Add(-24 * time.Hour)}), true, StandingAnswered},
		{"answered longer ago", answered(kept, Payment{AnsweredAt: longAgo}), true, StandingAnswerGone},
		{"a part is owed", answered(part, Payment{AnswerValidUntil: live, Lookups: 1, LookupAt: epoch.Add(-10 * time.Second)}), true, StandingPartOwed},
		{"a part is owed, too early", answered(part, Payment{AnswerValidUntil: live, Lookups: 1, LookupAt: epoch.Add(1 - 10*time.Second)}), true, StandingPartLater},
		{"a part is looked up now", answered(part, Payment{AnswerValidUntil: live, LeaseUntil: live}), true, StandingPartLater},
		{"a part was owed", answered(part, Payment{AnswerValidUntil: epoch}), true, StandingAnswered},
		{"too large", answered(large, Payment{Lookups: 4, LookupAt: epoch.Add(-10 * time.Minute)}), true, StandingUnkept},
		{"too large, too early", answered(large, Payment{Lookups: 1, LookupAt: epoch}), true, StandingUnkeptLater},
		{"too large, and looked up now", answered(large, Payment{LeaseUntil: live}), true, StandingUnkeptRuns},
		{"too large, five times", answered(large, Payment{Lookups: 5}), true, StandingAnswerGone},
		{"attested", Payment{State: Redeemed, Answer: &kept}, true, StandingAttested},
		{"refunded", Payment{State: Refunded}, true, StandingRefunded},
	} {
		got := Stand(&c.r, View{Now: epoch, Node: c.node})
		if got != c.want {
			t.Errorf("%s: standing %d, want %d", c.name, got, c.want)
		}
		seen[got] = true
	}
	for s := range standings {
		if m := s.Meaning(); !seen[s] || m.Claim == 0 || m.Owner == 0 || m.Case == "" {
			t.Errorf("standing %d occurs: %t; it means %+v", s, seen[s], m)
		}
	}
}

// TestOwnershipOfAnAnswer checks how long an answer is valid for its purchase. It must be
// valid until its recorded time or, if the payer has named the purchase, for a day. The
// arrival time of the request must decide, and not the time at which the record is read.
func TestOwnershipOfAnAnswer(t *testing.T) {
	l := New(nil, nil, nil)
	validUntil := epoch.Add(45 * time.Second)
	for purchase, until := range map[string]time.Time{
		PurchaseKey("n", "a", "p", RequestID("1")): validUntil,
		PurchaseKey("n", "a", "p", KeyID("1")):     epoch.Add(KeptFor),
	} {
		r := Payment{State: Redeemed, Purchase: purchase, Answer: &Answer{Stored: true}, AnsweredAt: epoch, AnswerValidUntil: validUntil}
		for arrived, want := range map[time.Time]Ownership{until.Add(-1): OwnerAnswers, until: OwnerOver} {
			if got := l.Ownership(&r, View{Now: until.Add(time.Hour), Arrived: arrived}); got != want {
				t.Errorf("%s, %v after the answer: %d, want %d", purchase, arrived.Sub(epoch), got, want)
			}
			if got := l.Ownership(&r, View{Now: arrived}); got != want {
				t.Errorf("%s, looked at %v after the answer: %d, want %d", purchase, arrived.Sub(epoch), got, want)
			}
		}
	}
}

// TestRefundBegun checks that the payer has no right to an answer from the beginning of a
// refund until the refund is withdrawn. If two operators begin a refund, the first must stay
// on record.
func TestRefundBegun(t *testing.T) {
	rules := NewRules()
	r := Payment{State: Settled, SettledAt: epoch, Lookups: 1, LastFault: &Failure{}, LookupAt: epoch}
	apply := func(event Event, by string, legal bool) {
		t.Helper()
		next, err := rules.step(r, event, Change{now: epoch.Add(time.Hour), leaseUntil: epoch.Add(2 * time.Hour), Operator: by, answer: &Answer{Stored: true}})
		if (err == nil) != legal {
			t.Errorf("%s: %v", event, err)
		}
		if legal {
			r = next
		}
	}
	apply(EventWithdraw, "", false)
	apply(EventSendBack, "first", true)
	apply(EventSendBack, "second", true)
	apply(EventClaim, "", false)
	apply(EventRedeem, "", false)
	if r.SendingBack == nil || r.SendingBack.By != "first" {
		t.Errorf("begun by %+v", r.SendingBack)
	}
	apply(EventWithdraw, "", true)
	apply(EventClaim, "", true)
	apply(EventSendBack, "third", false) // a refund cannot begin while a lookup is running
}
