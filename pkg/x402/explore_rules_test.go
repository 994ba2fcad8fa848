package x402_test

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// omittedRule is a rule that an exploration leaves out, to test that the explorer notices. In the
// explored worlds, a payment has one purchase name, no clock stops, and there is one transport.
// Therefore the rules about several names, stopped clocks and two transports cannot be tested
// here. TestCampaignDetects tests them.
type omittedRule struct {
	name  string
	shows string                  // the violation that the exploration must find
	world func(w *explored)       // makes the rule matter in the world; for some rules, also makes the Gate omit the rule
	rules func(r *ledger.Rules)   // removes the rule from the tables; nil changes nothing
	reads func(r *ledger.Payment) // changes each record that is read, so that the rule does nothing; nil changes no record
}

// without changes what the owner of a purchase means for the other payments of the purchase, if
// the owner has the standing s.
func without(r *ledger.Rules, s ledger.Standing, o ledger.Ownership) { r.Meanings[s].Owner = o }

func omittedRules() []omittedRule {
	anywhere := func(r *ledger.Payment) { r.Endpoint = "" }
	other := func(w *explored) { w.secondEndpoint, w.onePrice = true, true }
	return []omittedRule{
		{
			name: "a record answers only at the endpoint that admitted it", shows: "answered at another endpoint",
			world: func(w *explored) { other(w); w.anywhere = true },
		},
		{
			name: "an owner in doubt is sent again only at its endpoint", shows: "sent from another endpoint",
			world: other, reads: anywhere,
		},
		{
			name: "the check is asked before every send", shows: "sent although the check refuses",
			world: func(w *explored) { w.checks, w.unasked = true, true },
		},
		{
			name: "the check stops nothing else", shows: "the check refuses what is paid",
			world: func(w *explored) { w.checks, w.atTheDoor = true, true },
		},
		{
			name: "no clock ends a debt", shows: "charged twice for one purchase",
			world: func(*explored) {}, rules: func(r *ledger.Rules) {
				without(r, ledger.StandingOverdue, ledger.OwnerOver)
				without(r, ledger.StandingOverdueLater, ledger.OwnerOver)
			},
		},
		{
			name: "no count ends a debt", shows: "charged twice for one purchase",
			world: func(w *explored) { w.mostRuns = 1 }, rules: func(r *ledger.Rules) { without(r, ledger.StandingExhausted, ledger.OwnerOver) },
		},
		{
			name: "a bundle that owes a part stands for its purchase", shows: "charged twice for one purchase",
			world: func(w *explored) { w.works = []work{workOwes} }, rules: func(r *ledger.Rules) {
				without(r, ledger.StandingPartOwed, ledger.OwnerOver)
				without(r, ledger.StandingPartLater, ledger.OwnerOver)
			},
		},
		{
			name: "what is on the chain opens nothing", shows: "opened by what is on the chain",
			world: func(w *explored) { w.tokens = false }, reads: func(r *ledger.Payment) { r.Sent, r.Doubt = false, false },
		},
		{
			name: "what was refused and never proven is in a list", shows: "refused, not proven, and in no list",
			world: func(w *explored) { w.node, w.replies = false, honestReplies() }, reads: func(r *ledger.Payment) { r.NoNode = false },
		},
		{
			name: "a refund that was begun ends the right to an answer", shows: "answered, and its refund was begun",
			world: func(w *explored) { w.budget.refunds = 1 }, reads: func(r *ledger.Payment) { r.SendingBack = nil },
		},
		{
			name: "what was sent before and is refused again is asked of the chain", shows: "a send was forgotten",
			world: func(w *explored) { w.replies = honestReplies() }, reads: func(r *ledger.Payment) { r.Sent = false },
		},
	}
}

// TestExploreFindsOmittedRules explores a world twice for each rule. While the rule is in force,
// the exploration must find no violation. When the rule is left out, the exploration must find
// the violation that the rule prevents.
func TestExploreFindsOmittedRules(t *testing.T) {
	for _, rule := range omittedRules() {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			w := ruleWorld()
			rule.world(&w)
			followed := w
			followed.anywhere, followed.unasked, followed.atTheDoor = false, false, false
			for what, story := range explore(t, followed, ledger.NewRules(), x402.Conclusions(), false).traces {
				t.Errorf("with the rule: %s:\n%s", what, story)
			}
			w.reads = rule.reads
			rules := ledger.NewRules()
			if rule.rules != nil {
				rule.rules(&rules)
			}
			x := explore(t, w, rules, x402.Conclusions(), false)
			if x.traces[rule.shows] == "" {
				t.Errorf("%q was not found in %d states", rule.shows, len(x.states))
			}
			for what, story := range x.traces {
				t.Logf("%s:\n%s", what, story)
			}
		})
	}
}
