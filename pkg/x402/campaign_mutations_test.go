package x402_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// brokenRule is a rule that TestCampaignDetects breaks. To break it, the campaign changes
// every payment that a process reads from the store or writes to it. For each invariant that
// such a change can violate, there is at least one brokenRule. The unit tests of the Gate
// cover the faults of its code that no such change can imitate.
type brokenRule struct {
	name            string
	wantViolation   string                              // a part of the name of the invariant that must be violated
	withoutEvidence bool                                // the Gate has no chain evidence
	maxSchedules    int                                 // the maximum number of schedules; 0 means 500
	changeRead      func(p *process, r *ledger.Payment) // changes a payment that a process reads; may be nil
	changeWrite     func(p *process, r *ledger.Payment) // changes a payment that a process writes; may be nil
}

// recordAsRead returns the record that the process gets when it reads r. If r is a payment,
// and the schedule breaks a rule at reading, the process gets a changed copy of r. Otherwise
// it gets r.
func (p *process) recordAsRead(r ledger.Record) ledger.Record {
	pay, ok := r.(ledger.Payment)
	if b := p.w.brokenRule; ok && b != nil && b.changeRead != nil {
		b.changeRead(p, &pay)
		return pay
	}
	return r
}

// recordAsWritten returns the record that is stored when a process writes r in place of old.
// If r is a payment, the rule may change it first.
func (b *brokenRule) recordAsWritten(p *process, old, r ledger.Record) ledger.Record {
	pay, ok := r.(ledger.Payment)
	if !ok {
		return r
	}
	if b.changeWrite != nil {
		b.changeWrite(p, &pay)
	}
	before, ok := old.(ledger.Payment)
	if !ok || !onlyVersionRaised(before, pay) {
		return pay
	}
	// The process only raises the version, and writes back the record that it has read. A
	// broken rule may have changed that record at reading, and this change must not be stored.
	// Therefore keep the old record, with the version and the id of this write.
	before.Version, before.WriteID = pay.Version, pay.WriteID
	return before
}

func brokenRules() []brokenRule {
	return slices.Concat(rulesOfDoubt(), rulesOfRequests(), rulesOfLookups(), rulesOfPurchases())
}

// rulesOfDoubt returns the broken rules about payments that may have been sent: about their
// record, their lease, and the proof that a repeated request needs.
func rulesOfDoubt() []brokenRule {
	forgetSend := func(_ *process, r *ledger.Payment) { r.Sent = false }
	return []brokenRule{
		{name: "doubt is not sticky", wantViolation: "refused in the end", withoutEvidence: true, changeRead: func(_ *process, r *ledger.Payment) {
			r.Doubt = false
			if r.State == ledger.Uncertain || r.State == ledger.Settling && r.LeaseUntil.Before(time.Now()) {
				r.State = ledger.Refused
			}
		}},
		{name: "the lease ends at settled", wantViolation: "two lookups ran at once", changeRead: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Settled {
				r.LeaseUntil, r.LookupAt = time.Time{}, time.Time{}
			}
		}},
		{name: "a live lease does not exclude others", wantViolation: "a live lease was taken", changeRead: func(_ *process, r *ledger.Payment) {
			r.LeaseUntil = time.Time{}
		}},
		{name: "any signature opens a record", wantViolation: "a forged signature got an answer", changeRead: func(p *process, r *ledger.Payment) {
			r.Token, r.SigDigest = "", p.header.digest
		}},
		{name: "a repeat needs no proof", wantViolation: "a stranger's copy got something", changeRead: func(p *process, r *ledger.Payment) {
			r.Token = p.header.token
		}},
		{name: "a later attempt forgets a send", wantViolation: "a send was forgotten", changeRead: forgetSend},
		{name: "a later attempt forgets a send", wantViolation: "refused again, and the chain was not asked", changeRead: forgetSend},
		{name: "a later attempt forgets a send", wantViolation: "refused a payment that has moved", withoutEvidence: true, changeRead: forgetSend},
	}
}

// rulesOfRequests returns the broken rules about the choice of the facilitator, about the
// requests that get an answer, and about how long debts and doubts remain on record.
func rulesOfRequests() []brokenRule {
	return []brokenRule{
		{name: "who is asked is not recorded", wantViolation: "asked, and not named on record", changeWrite: func(_ *process, r *ledger.Payment) {
			r.Asked = nil
		}},
		{name: "who refused is not recorded", wantViolation: "taken to the other facilitator", maxSchedules: 1000, changeRead: func(_ *process, r *ledger.Payment) {
			r.RefusedBy, r.Refusals = "", 0
		}},
		{name: "debts are kept for 72 hours", wantViolation: "a debt or a doubt was forgotten", maxSchedules: 1000, changeWrite: func(_ *process, r *ledger.Payment) {
			if r.InDoubt() || r.Owed() {
				r.ExpiresAt = r.ValidBefore.Add(72 * time.Hour)
			}
		}},
		{name: "any name will do", wantViolation: "worked for an authorization under another name", changeRead: func(p *process, r *ledger.Payment) {
			if p.payment != nil && r.Key == p.payment.key {
				r.Purchase = p.purchaseKey(p.w)
			}
		}},
		{name: "any endpoint answers", wantViolation: "an answer at another endpoint", changeRead: func(p *process, r *ledger.Payment) {
			r.Endpoint = p.endpoint
		}},
		{name: abandonedIsClosed, wantViolation: "taken over from a payment that may have been sent", withoutEvidence: true, maxSchedules: 3000, changeRead: func(p *process, r *ledger.Payment) {
			if p.kind == actorReconciler && r.State == ledger.Settling && !r.Sent && !r.Doubt {
				r.ValidBefore = r.LeaseUntil
			}
		}},
	}
}

// rulesOfLookups returns the broken rules about how often and when a lookup may run, and one
// about superseded payments.
func rulesOfLookups() []brokenRule {
	return []brokenRule{
		{name: "a superseded payment is a refused one", wantViolation: "a superseded payment was", changeRead: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Superseded {
				r.State = ledger.Refused
			}
		}},
		{name: "any number of lookups is permitted", wantViolation: "more lookups than a payment buys", maxSchedules: 2000, changeRead: func(_ *process, r *ledger.Payment) {
			r.MostLookups = 0
		}},
		{name: "only one lookup is permitted", wantViolation: "used up before the lookups are had", changeRead: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Settled && r.Lookups > 0 {
				r.MostLookups = r.Lookups
			}
		}},
		{name: "lookups are not spaced", wantViolation: "a lookup came too soon", maxSchedules: 1000, changeRead: func(_ *process, r *ledger.Payment) {
			r.LookupAt = time.Time{}
		}},
	}
}

// rulesOfPurchases returns the broken rules about the payment that owns a purchase.
func rulesOfPurchases() []brokenRule {
	return []brokenRule{
		{name: "an owner in doubt was never sent", wantViolation: "charged twice for one purchase", changeRead: changeIfOwner("settling uncertain", func(p *process, r *ledger.Payment) {
			if !r.LeaseUntil.After(p.now()) {
				r.State, r.Sent, r.LeaseUntil = ledger.Refused, false, time.Time{}
			}
		})},
		{name: "the arriving transport decides how long an answer stands", wantViolation: "charged twice for one purchase", maxSchedules: 3000, changeRead: changeIfOwner("redeemed", func(p *process, r *ledger.Payment) {
			r.AnswerValidUntil = r.AnsweredAt.Add(p.answerWindow())
		})},
		{name: "an answer is replayed for ever", wantViolation: "what was over is answered once more", changeRead: changeIfOwner("redeemed", func(p *process, r *ledger.Payment) {
			r.AnsweredAt, r.AnswerValidUntil = p.now(), p.now().Add(time.Minute)
		})},
		{name: "an owner's request is any", wantViolation: "an answer for another request", maxSchedules: 1000, changeRead: changeIfOwner("settling uncertain settled redeemed", func(p *process, r *ledger.Payment) {
			r.Request = p.path
		})},
		{name: "a dead owner is in doubt", wantViolation: "no end, and not on the list of what is in doubt", changeRead: changeIfOwner("refused", func(_ *process, r *ledger.Payment) {
			r.Disproved, r.Sent, r.Doubt = false, true, true
		})},
		{name: "nobody waits", wantViolation: "did not wait for another payment", changeRead: changeIfOwner("settling settled", func(p *process, r *ledger.Payment) {
			if r.LeaseUntil.After(p.now()) {
				p.clockOffset.Add(int64(8 * time.Second)) // by the clock of the process, it has now waited long enough
			}
		})},
	}
}

// changeIfOwner returns a value for brokenRule.changeRead: a function that changes a record
// only if the payment in the record owns the purchase and has one of the given states. A
// client's process reads only two payments: the payment of its request, and the payment that
// owns the purchase. So changeIfOwner takes every payment other than that of the request for
// the payment that owns the purchase.
func changeIfOwner(states string, change func(p *process, r *ledger.Payment)) func(*process, *ledger.Payment) {
	return func(p *process, r *ledger.Payment) {
		a := p.w.authorizationOf(r.Key)
		if a != nil && a != p.payment && p.kind == actorClient && strings.Contains(states, string(r.State)) {
			change(p, r)
		}
	}
}

// abandonedIsClosed is the name of a rule whose breach shows only if processes stall.
// Therefore newWorld sets hasStalls in every schedule that breaks this rule.
const abandonedIsClosed = "an abandoned payment is closed ten minutes after its lease"

// TestCampaignDetects runs one campaign for each broken rule. In at least one schedule, the
// campaign must report the violation that is expected for this rule.
func TestCampaignDetects(t *testing.T) {
	if raceDetectorIsOn() {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	f := newFixture(t)
	for _, c := range brokenRules() {
		t.Run(c.name+", "+c.wantViolation, func(t *testing.T) {
			t.Parallel()
			const some = 50
			seen := map[string]int{}
			for at := 0; at < cmp.Or(c.maxSchedules, 500); at += some {
				maps.Copy(seen, runCampaign(t, f, some, !c.withoutEvidence, &c, 1<<32+uint64(at)).violations)
				for what := range seen {
					if strings.Contains(what, c.wantViolation) {
						return
					}
				}
			}
			t.Errorf("the campaign did not see it: %v", seen)
		})
	}
}
