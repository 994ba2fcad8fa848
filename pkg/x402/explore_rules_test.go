package x402_test

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// omittedRule is a rule that an exploration leaves out. The explorer must notice that the rule
// is missing. In the explored worlds, a payment has one purchase name, no clock stops, and
// there is one transport. Therefore the rules about several names, stopped clocks and two
// transports cannot be tested here. TestCampaignDetects tests them.
type omittedRule struct {
	name        string
	violation   string                  // the violation that the exploration must find
	changeWorld func(w *exploredWorld)  // makes the rule matter in the world; for some rules, also makes the Gate omit the rule
	changeRules func(r *ledger.Rules)   // removes the rule from the tables; nil changes nothing
	changeRead  func(r *ledger.Payment) // changes each record that is read, so that the rule does nothing; nil changes no record
}

// setOwnerMeaning changes the rules for a purchase whose owner has the standing s. The new
// value o says whether another payment can become the owner.
func setOwnerMeaning(r *ledger.Rules, s ledger.Standing, o ledger.Ownership) { r.Meanings[s].Owner = o }

func omittedRules() []omittedRule {
	anywhere := func(r *ledger.Payment) { r.Endpoint = "" }
	other := func(w *exploredWorld) { w.hasSecondEndpoint, w.onePrice = true, true }
	return []omittedRule{
		{
			name: "a record answers only at the endpoint that admitted it", violation: "answered at another endpoint",
			changeWorld: func(w *exploredWorld) { other(w); w.claimsFirstEndpoint = true },
		},
		{
			name: "an owner in doubt is sent again only at its endpoint", violation: "sent from another endpoint",
			changeWorld: other, changeRead: anywhere,
		},
		{
			name: "the check is asked before every send", violation: "sent although the check refuses",
			changeWorld: func(w *exploredWorld) { w.hasCheck, w.skipsCheck = true, true },
		},
		{
			name: "the check stops nothing else", violation: "the check refuses what is paid",
			changeWorld: func(w *exploredWorld) { w.hasCheck, w.checksFirst = true, true },
		},
		{
			name: "no clock ends a debt", violation: "charged twice for one purchase",
			changeWorld: func(*exploredWorld) {}, changeRules: func(r *ledger.Rules) {
				setOwnerMeaning(r, ledger.StandingOverdue, ledger.OwnerOver)
				setOwnerMeaning(r, ledger.StandingOverdueLater, ledger.OwnerOver)
			},
		},
		{
			name: "no count ends a debt", violation: "charged twice for one purchase",
			changeWorld: func(w *exploredWorld) { w.mostRuns = 1 }, changeRules: func(r *ledger.Rules) { setOwnerMeaning(r, ledger.StandingExhausted, ledger.OwnerOver) },
		},
		{
			name: "a bundle that owes a part stands for its purchase", violation: "charged twice for one purchase",
			changeWorld: func(w *exploredWorld) { w.workEnds = []workEnd{workOwes} }, changeRules: func(r *ledger.Rules) {
				setOwnerMeaning(r, ledger.StandingPartOwed, ledger.OwnerOver)
				setOwnerMeaning(r, ledger.StandingPartLater, ledger.OwnerOver)
			},
		},
		{
			name: "what is on the chain opens nothing", violation: "opened by what is on the chain",
			changeWorld: func(w *exploredWorld) { w.echoesTokens = false }, changeRead: func(r *ledger.Payment) { r.Sent, r.Doubt = false, false },
		},
		{
			name: "what was refused and never proven is in a list", violation: "refused, not proven, and in no list",
			changeWorld: func(w *exploredWorld) { w.hasNode, w.replies = false, honestReplies() }, changeRead: func(r *ledger.Payment) { r.NoNode = false },
		},
		{
			name: "a refund that was begun ends the right to an answer", violation: "answered, and its refund was begun",
			changeWorld: func(w *exploredWorld) { w.budget.refunds = 1 }, changeRead: func(r *ledger.Payment) { r.SendingBack = nil },
		},
		{
			name: "what was sent before and is refused again is asked of the chain", violation: "a send was forgotten",
			changeWorld: func(w *exploredWorld) { w.replies = honestReplies() }, changeRead: func(r *ledger.Payment) { r.Sent = false },
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
			rule.changeWorld(&w)
			followed := w
			followed.claimsFirstEndpoint, followed.skipsCheck, followed.checksFirst = false, false, false
			for what, story := range explore(t, followed, ledger.NewRules(), x402.Conclusions(), false).violationStories {
				t.Errorf("with the rule: %s:\n%s", what, story)
			}
			w.changeRead = rule.changeRead
			rules := ledger.NewRules()
			if rule.changeRules != nil {
				rule.changeRules(&rules)
			}
			x := explore(t, w, rules, x402.Conclusions(), false)
			if x.violationStories[rule.violation] == "" {
				t.Errorf("%q was not found in %d states", rule.violation, len(x.states))
			}
			for what, story := range x.violationStories {
				t.Logf("%s:\n%s", what, story)
			}
		})
	}
}
