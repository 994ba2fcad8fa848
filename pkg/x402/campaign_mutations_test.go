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
	rule  string
	want  string                              // a part of the name of the invariant that must be violated
	blind bool                                // the Gate has no chain evidence
	n     int                                 // the maximum number of schedules; 0 means 500
	read  func(p *process, r *ledger.Payment) // changes a payment that a process reads; may be nil
	write func(p *process, r *ledger.Payment) // changes a payment that a process writes; may be nil
}

// reads returns the record that the process gets when it reads r. If r is a payment, and the
// schedule breaks a rule at reading, the process gets a changed copy of r. Otherwise it gets
// r.
func (p *process) reads(r ledger.Record) ledger.Record {
	pay, ok := r.(ledger.Payment)
	if b := p.w.broken; ok && b != nil && b.read != nil {
		b.read(p, &pay)
		return pay
	}
	return r
}

// written returns the record that is stored when a process writes r in place of old. If r is a
// payment, the rule may change it first.
func (b *brokenRule) written(p *process, old, r ledger.Record) ledger.Record {
	pay, ok := r.(ledger.Payment)
	if !ok {
		return r
	}
	if b.write != nil {
		b.write(p, &pay)
	}
	before, ok := old.(ledger.Payment)
	if !ok || !onlyRaised(before, pay) {
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
	forgets := func(_ *process, r *ledger.Payment) { r.Sent = false }
	return []brokenRule{
		{rule: "doubt is not sticky", want: "refused in the end", blind: true, read: func(_ *process, r *ledger.Payment) {
			r.Doubt = false
			if r.State == ledger.Uncertain || r.State == ledger.Settling && r.LeaseUntil.Before(time.Now()) {
				r.State = ledger.Refused
			}
		}},
		{rule: "the lease ends at settled", want: "two lookups ran at once", read: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Settled {
				r.LeaseUntil, r.LookupAt = time.Time{}, time.Time{}
			}
		}},
		{rule: "a live lease does not exclude others", want: "a live lease was taken", read: func(_ *process, r *ledger.Payment) {
			r.LeaseUntil = time.Time{}
		}},
		{rule: "any signature opens a record", want: "a forged signature got an answer", read: func(p *process, r *ledger.Payment) {
			r.Token, r.SigDigest = "", p.signed.digest
		}},
		{rule: "a repeat needs no proof", want: "a stranger's copy got something", read: func(p *process, r *ledger.Payment) {
			r.Token = p.signed.token
		}},
		{rule: "a later attempt forgets a send", want: "a send was forgotten", read: forgets},
		{rule: "a later attempt forgets a send", want: "refused again, and the chain was not asked", read: forgets},
		{rule: "a later attempt forgets a send", want: "refused a payment that has moved", blind: true, read: forgets},
	}
}

// rulesOfRequests returns the broken rules about the choice of the facilitator, about the
// requests that get an answer, and about how long debts and doubts remain on record.
func rulesOfRequests() []brokenRule {
	return []brokenRule{
		{rule: "who is asked is not recorded", want: "asked, and not named on record", write: func(_ *process, r *ledger.Payment) {
			r.Asked = nil
		}},
		{rule: "who refused is not recorded", want: "taken to the other facilitator", n: 1000, read: func(_ *process, r *ledger.Payment) {
			r.RefusedBy, r.Refusals = "", 0
		}},
		{rule: "debts are kept for 72 hours", want: "a debt or a doubt was forgotten", n: 1000, write: func(_ *process, r *ledger.Payment) {
			if r.InDoubt() || r.Owed() {
				r.ExpiresAt = r.ValidBefore.Add(72 * time.Hour)
			}
		}},
		{rule: "any name will do", want: "worked for an authorization under another name", read: func(p *process, r *ledger.Payment) {
			if p.pay != nil && r.Key == p.pay.key {
				r.Purchase = p.named(p.w)
			}
		}},
		{rule: "any endpoint answers", want: "an answer at another endpoint", read: func(p *process, r *ledger.Payment) {
			r.Endpoint = p.endpoint
		}},
		{rule: abandonedIsClosed, want: "taken over from a payment that may have been sent", blind: true, n: 3000, read: func(p *process, r *ledger.Payment) {
			if p.kind == asReconciler && r.State == ledger.Settling && !r.Sent && !r.Doubt {
				r.ValidBefore = r.LeaseUntil
			}
		}},
	}
}

// rulesOfLookups returns the broken rules about how often and when a lookup may run, and one
// about superseded payments.
func rulesOfLookups() []brokenRule {
	return []brokenRule{
		{rule: "a superseded payment is a refused one", want: "a superseded payment was", read: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Superseded {
				r.State = ledger.Refused
			}
		}},
		{rule: "any number of lookups is permitted", want: "more lookups than a payment buys", n: 2000, read: func(_ *process, r *ledger.Payment) {
			r.MostLookups = 0
		}},
		{rule: "only one lookup is permitted", want: "used up before the lookups are had", read: func(_ *process, r *ledger.Payment) {
			if r.State == ledger.Settled && r.Lookups > 0 {
				r.MostLookups = r.Lookups
			}
		}},
		{rule: "lookups are not spaced", want: "a lookup came too soon", n: 1000, read: func(_ *process, r *ledger.Payment) {
			r.LookupAt = time.Time{}
		}},
	}
}

// rulesOfPurchases returns the broken rules about the payment that owns a purchase.
func rulesOfPurchases() []brokenRule {
	return []brokenRule{
		{rule: "an owner in doubt was never sent", want: "charged twice for one purchase", read: ofOwner("settling uncertain", func(p *process, r *ledger.Payment) {
			if !r.LeaseUntil.After(p.now()) {
				r.State, r.Sent, r.LeaseUntil = ledger.Refused, false, time.Time{}
			}
		})},
		{rule: "the arriving transport decides how long an answer stands", want: "charged twice for one purchase", n: 3000, read: ofOwner("redeemed", func(p *process, r *ledger.Payment) {
			r.AnswerValidUntil = r.AnsweredAt.Add(p.window())
		})},
		{rule: "an answer is replayed for ever", want: "what was over is answered once more", read: ofOwner("redeemed", func(p *process, r *ledger.Payment) {
			r.AnsweredAt, r.AnswerValidUntil = p.now(), p.now().Add(time.Minute)
		})},
		{rule: "an owner's request is any", want: "an answer for another request", n: 1000, read: ofOwner("settling uncertain settled redeemed", func(p *process, r *ledger.Payment) {
			r.Request = p.path
		})},
		{rule: "a dead owner is in doubt", want: "no end, and not on the list of what is in doubt", read: ofOwner("refused", func(_ *process, r *ledger.Payment) {
			r.Disproved, r.Sent, r.Doubt = false, true, true
		})},
		{rule: "nobody waits", want: "did not wait for another payment", read: ofOwner("settling settled", func(p *process, r *ledger.Payment) {
			if r.LeaseUntil.After(p.now()) {
				p.offset.Add(int64(8 * time.Second)) // by the clock of the process, it has now waited long enough
			}
		})},
	}
}

// ofOwner returns a value for brokenRule.read: a function that changes a record only if the
// record belongs to the owner of the purchase and has one of the given states. A client's
// process reads only two payments: that of the request and that of the owner. So ofOwner
// assumes that every payment other than that of the request is the owner.
func ofOwner(states string, read func(p *process, r *ledger.Payment)) func(*process, *ledger.Payment) {
	return func(p *process, r *ledger.Payment) {
		a := p.w.authorizationOf(r.Key)
		if a != nil && a != p.pay && p.kind == asClient && strings.Contains(states, string(r.State)) {
			read(p, r)
		}
	}
}

// abandonedIsClosed is the name of a rule whose breach shows only if processes stall.
// Therefore newWorld lets processes stall in every schedule that breaks this rule.
const abandonedIsClosed = "an abandoned payment is closed ten minutes after its lease"

// TestCampaignDetects plays one campaign for each broken rule. In at least one schedule, the
// campaign must report the violation that is expected for this rule.
func TestCampaignDetects(t *testing.T) {
	if raceDetector() {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	f := newFixture(t)
	for _, c := range brokenRules() {
		t.Run(c.rule+", "+c.want, func(t *testing.T) {
			t.Parallel()
			const some = 50
			seen := map[string]int{}
			for at := 0; at < cmp.Or(c.n, 500); at += some {
				maps.Copy(seen, campaign(t, f, some, !c.blind, &c, 1<<32+uint64(at)).broken)
				for what := range seen {
					if strings.Contains(what, c.want) {
						return
					}
				}
			}
			t.Errorf("the campaign did not see it: %v", seen)
		})
	}
}
