package x402_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func (p *process) applyBrokenRead(r *ledger.Record) *ledger.Record {
	if r == nil {
		return nil
	}
	settled, abandoned := r.State == ledger.Settled, r.State == ledger.Settling && !r.Sent && !r.Doubt
	switch rule := p.w.brokenRule; {
	case rule == "doubt is not sticky", rule == "a used nonce is a refusal":
		r.Doubt = false
		if r.State == ledger.Uncertain || r.State == ledger.Settling && r.LeaseUntil.Before(time.Now()) {
			r.State = ledger.Refused
		}
	case rule == "the lease ends at settled" && settled:
		r.LeaseUntil, r.LookupAt = time.Time{}, time.Time{}
	case rule == "a live lease does not exclude others":
		r.LeaseUntil = time.Time{}
	case rule == "any signature opens a contract wallet's record":
		r.Token, r.SigDigest = "", p.signed.digest
	case rule == "a repeat needs no proof", rule == "a repeat without a token is permitted once paid" && r.Token == "":
		r.Token = p.signed.token
	case rule == "a later attempt forgets that an earlier one sent":
		r.Sent = false
	case rule == "who refused is not recorded":
		r.RefusedBy, r.Refusals = "", 0
	case rule == "an authorization may come under another name" && p.pay != nil && r.Key == p.pay.key:
		r.Purchase = p.named(p.w)
	case rule == "an abandoned payment is closed ten minutes after its lease" && p.kind == asReconciler && abandoned:
		r.ValidBefore = r.LeaseUntil
	case rule == "a superseded payment may be sent like a refused one" && r.State == ledger.Superseded:
		r.State = ledger.Refused
	case rule == "lookups are not counted":
		r.Lookups = min(r.Lookups, 1)
	case rule == "only one lookup is permitted" && settled && r.Lookups > 0:
		r.Lookups = ledger.MaxLookups
	case rule == "lookups are not spaced":
		r.LookupAt = time.Time{}
	}
	if a := p.w.authorizationOf(r.Key); a != nil && a != p.pay && p.kind == asClient {
		p.applyBrokenOwnerRead(r)
	}
	return r
}

// applyBrokenOwnerRead changes the record of another payment, which owns the purchase,
// according to the broken rule.
func (p *process) applyBrokenOwnerRead(r *ledger.Record) {
	held := r.LeaseUntil.After(p.now())
	dead := func() { r.State, r.Sent, r.LeaseUntil = ledger.Refused, false, time.Time{} }
	switch s := p.w.brokenRule; {
	case s == "an owner for another request is one for this":
		r.Request = p.path
	case s == "an owner in flight is dead" && r.InDoubt() && held, s == "an owner in doubt was never sent" && r.InDoubt() && !held, s == "an owner that the facilitator refused was never sent" && r.State == ledger.Refused:
		dead()
	case s == "an owner that is proven dead is in doubt" && r.State == ledger.Refused:
		r.Disproved, r.Sent, r.Doubt = false, true, true
	case s == "an owner whose answer is owed is used up" && r.State == ledger.Settled && !held:
		r.Lookups = ledger.MaxLookups
		r.LookupAt = time.Time{}
	case s == "an owner that is used up owes an answer" && r.State == ledger.Settled:
		r.Lookups, r.LookupAt = 1, r.SettledAt
	case s == "a key whose lookups are used up is free at once" && r.State == ledger.Settled:
		r.LookupAt = time.Time{}
	case s == "an answer is not replayed to other signatures" && r.State == ledger.Redeemed:
		r.AnsweredAt, r.StandsUntil = time.Unix(1, 0), time.Unix(1, 0)
	case s == "an answer is replayed for ever" && r.State == ledger.Redeemed:
		r.AnsweredAt, r.StandsUntil = p.now(), p.now().Add(time.Minute)
	case s == "the replay window begins with the first claim" && r.State == ledger.Redeemed:
		r.AnsweredAt, r.StandsUntil = r.CreatedAt, r.CreatedAt.Add(r.StandsUntil.Sub(r.AnsweredAt))
	case s == "the transport that arrives decides how long an answer stands" && r.State == ledger.Redeemed:
		r.StandsUntil = r.AnsweredAt.Add(p.window())
	case s == "nobody waits for another payment" && held:
		p.offset.Add(int64(8 * time.Second)) // to the end of the time that a request waits
	}
}

func (p *process) applyBrokenWrite(r *ledger.Record) {
	undecided := r.State == ledger.Settling || r.State == ledger.Uncertain || r.State == ledger.Settled
	switch rule := p.w.brokenRule; {
	case rule == "the lease is shorter than the invocation" && !r.LeaseUntil.IsZero():
		r.LeaseUntil = p.now().Add(5 * time.Second)
	case rule == "what is owed or in doubt is kept for 72 hours" && undecided:
		r.ExpiresAt = r.ValidBefore.Add(72 * time.Hour)
	case rule == "who is asked is not recorded":
		r.Asked = nil
	case rule == "the fallback's refusal in doubt is on record" && p.pins && r.State == ledger.Uncertain && r.RefusedBy == "":
		r.RefusedBy = fallbackName
	}
}

// TestCampaignDetects: each rule, broken in turn, below the ledger or in what the
// Gate is given, makes the campaign fail with the expected violation. A rule that
// nothing breaks under its name fails here, too.
func TestCampaignDetects(t *testing.T) {
	if raceDetector() {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	f := newFixture(t)
	for _, c := range []struct {
		rule string
		rpc  bool
		n    int
		want string
	}{
		{"doubt is not sticky", false, 500, "refused in the end"},
		{"the lease ends at settled", true, 500, "two lookups ran at once"},
		{"the lease is shorter than the invocation", true, 500, "two lookups ran at once"},
		{"a live lease does not exclude others", true, 500, "a live lease was taken"},
		{"evidence is not written without the lease", true, 3000, "not on record"},
		{"versions are not compared", true, 3000, "a live lease was taken"},
		{"write ids are not compared", true, 500, "in progress, and no attempt is running"},
		{"verdicts end with the invocation", true, 500, "not on record"},
		{"nothing is written before sending", true, 500, "an answer of another purchase"},
		{"a used nonce is a refusal", true, 500, "charged"},
		{"an unknown outcome is a refusal", true, 500, "told that nothing moved and never will, and charged"},
		{"an unknown outcome is a refusal", false, 500, "charged twice for one purchase"},
		{"without a chain, used in doubt is not paid", false, 500, "in doubt after the faults, inside the window"},
		{"used alone is paid", true, 500, "told that money moved, and it did not"},
		{"a transfer from long before pays for this request", true, 1000, "an answer for a transfer of long before"},
		{"the window's end is proof by our clock", true, 3000, "refused in doubt and without proof"},
		{"an unused authorization counts as one that cannot be used", true, 500, "refused in doubt and without proof"},
		{"any signature opens a contract wallet's record", true, 500, "a forged signature got an answer"},
		{"known payments are judged by today's terms", true, 500, "refused in the end"},
		{"a purchase has no owner", true, 500, "charged twice for one purchase"},
		{"an owner for another request is one for this", true, 1000, "an answer for another request"},
		{"an owner in flight is dead", true, 500, "taken over from a payment that may have been sent"},
		{"an owner in doubt was never sent", true, 500, "charged twice for one purchase"},
		{"an owner that the facilitator refused was never sent", true, 500, "taken over from a payment that may have been sent"},
		{"an owner that is proven dead is in doubt", true, 500, "no end, and not on the list of what is in doubt"},
		{"an owner whose answer is owed is used up", true, 500, "charged twice for one purchase"},
		{"an owner that is used up owes an answer", true, 500, "more lookups than a payment buys"},
		{"a key whose lookups are used up is free at once", true, 2000, "charged twice for one purchase"},
		{"an answer is not replayed to other signatures", true, 500, "charged twice for one purchase"},
		{"an answer is replayed for ever", true, 500, "what was over is answered once more"},
		{"the replay window begins with the first claim", true, 1000, "charged twice for one purchase"},
		{"the owner's record is not closed before a takeover", true, 500, "a purchase was taken over from a payment that stands"},
		{"a purchase that is there is not opened before a send", true, 500, "this attempt did not open its purchase"},
		{"a later attempt forgets that an earlier one sent", true, 500, "a send was forgotten"},
		{"a repeat needs no proof", true, 500, "a stranger's copy got something"},
		{"a repeat without a token is permitted once paid", true, 500, "a stranger's copy got something"},
		{"nobody waits for another payment", true, 500, "did not wait for another payment"},
		{"a superseded payment may be sent like a refused one", true, 500, "a superseded payment was"},
		{"work takes no slot", true, 500, "worked without a slot"},
		{"who is asked is not recorded", true, 500, "asked, and not named on record"},
		{"who refused is not recorded", true, 1000, "a refusal about the payer was taken to the other facilitator"},
		{"the fallback's success in doubt is not checked", true, 1000, "a lookup before money moved"},
		{"an unknown outcome at the primary counts as a rejection", true, 500, "the fallback was asked at once"},
		{"what is owed or in doubt is kept for 72 hours", true, 1000, "a debt or a doubt was forgotten"},
		{"an authorization may come under another name", true, 500, "worked for an authorization under another name"},
		{"the transport that arrives decides how long an answer stands", true, 3000, "charged twice for one purchase"},
		{"an abandoned payment is closed ten minutes after its lease", false, 3000, "taken over from a payment that may have been sent"},
		{"a later attempt forgets that an earlier one sent", true, 500, "refused again, and the chain was not asked"},
		{"a later attempt forgets that an earlier one sent", false, 500, "refused a payment that has moved"},
		{"the fallback's refusal in doubt is on record", false, 500, "the fallback was asked, and not the primary"},
		{"dust counts as money without a request", true, 500, "dust is a debt"},
		{"the first cursor begins at the safe block", true, 3000, "paid, and refused on record"},
		{"the reconciler leaves silent targets alone", true, 3000, "a silent target is not the answer after a day"},
		{"one page of the index is read", true, 500, "in doubt in the end"},
		{"lookups are not counted", true, 500, "more lookups than a payment buys"},
		{"only one lookup is permitted", true, 500, "used up before five lookups"},
		{"lookups are not spaced", true, 1000, "a lookup came too soon"},
	} {
		t.Run(c.rule+", "+c.want, func(t *testing.T) {
			t.Parallel()
			const some = 50
			seen := map[string]int{}
			for at := 0; at < c.n; at += some {
				maps.Copy(seen, campaign(t, f, some, c.rpc, c.rule, 1<<32+uint64(at)).broken)
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
