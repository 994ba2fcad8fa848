package x402_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var exploreEvery = flag.Int("explore.every", 1, "of the changed rows, explore each nth")

// changedRow is a change of one row, in the ledger's rules or in the Gate's conclusions. If the
// field conclusions is nil, the row is in the rules, and the usual conclusions apply.
type changedRow struct {
	name        string
	rules       ledger.Rules
	conclusions []x402.Conclusion
}

// otherState returns a state other than the one to which the edge leads.
func otherState(e ledger.Edge) ledger.State {
	switch e.To {
	case ledger.Settled, ledger.Redeemed, ledger.Refunded, ledger.Superseded:
		return ledger.Uncertain
	case ledger.Settling:
		return ledger.Refused
	case ledger.Uncertain:
		return ledger.Refused
	case ledger.Refused:
		return ledger.Superseded
	}
	return ""
}

func changedEdges() (all []changedRow) {
	for i, e := range ledger.NewRules().Edges {
		name := fmt.Sprintf("edge %d, %s %v", i, e.From, e.Events)
		gone, led := ledger.NewRules(), ledger.NewRules()
		gone.Edges = slices.Delete(gone.Edges, i, i+1)
		led.Edges[i].To = otherState(e)
		all = append(all, changedRow{name + " is gone", gone, nil}, changedRow{fmt.Sprintf("%s leads to %s", name, led.Edges[i].To), led, nil})
	}
	return all
}

func changedMeanings() (all []changedRow) {
	for s, m := range ledger.NewRules().Meanings {
		add := func(what string, changed ledger.Meaning) {
			rules := ledger.NewRules()
			rules.Meanings[s] = changed
			all = append(all, changedRow{fmt.Sprintf("standing %d, %s", s, what), rules, nil})
		}
		claim, owner, name, moved := m, m, m, m
		claim.Claim = ledger.Held
		if m.Claim == ledger.Held {
			claim.Claim = ledger.Over
		}
		owner.Owner = map[ledger.Ownership]ledger.Ownership{
			ledger.OwnerBusy: ledger.OwnerDead, ledger.OwnerDoubt: ledger.OwnerDead, ledger.OwnerDead: ledger.OwnerAnswers,
			ledger.OwnerAnswers: ledger.OwnerOver, ledger.OwnerWhileValid: ledger.OwnerAnswers,
		}[m.Owner]
		name.Case = ledger.CaseUnknown
		moved.Moved = (m.Moved + 1) % 3
		add("claim", claim)
		add("owner", owner)
		owner.Owner = map[ledger.Ownership]ledger.Ownership{
			ledger.OwnerBusy: ledger.OwnerAnswers, ledger.OwnerDoubt: ledger.OwnerBusy, ledger.OwnerDead: ledger.OwnerDoubt,
			ledger.OwnerAnswers: ledger.OwnerBusy, ledger.OwnerWhileValid: ledger.OwnerOver,
		}[m.Owner]
		add("another owner", owner)
		add("case", name)
		add("charged", moved)
	}
	return all
}

func changedConclusions() (all []changedRow) {
	for i, c := range x402.Conclusions() {
		for _, other := range c.Otherwise() {
			rows := x402.Conclusions()
			rows[i] = other
			all = append(all, changedRow{fmt.Sprintf("conclusion %d, %s becomes %s", i, c, other), ledger.NewRules(), rows})
		}
	}
	return all
}

// unnoticeableRows returns the names of the changed rows for which no exploration can find a
// violation, each with the reason. If an exploration finds a violation for such a row after
// all, TestExploreNoticesRows fails.
func unnoticeableRows() map[string]string {
	const missing = "a payment without a record is not claimed by its standing, in no list, and answered without one"
	const stands = "a part is owed only while the answer stands"
	return map[string]string{
		"standing 0, claim": missing, "standing 0, case": missing, "standing 0, charged": missing,
		"standing 0, another owner":  "a purchase whose payment has no record any more is older than these worlds",
		"standing 21, owner":         stands,
		"standing 22, owner":         stands,
		"standing 26, another owner": "an answer that is gone stands only after five runs, which is more than these worlds have",
		"standing 27, another owner": "what an operator has closed never stands, so that it is over in either case",
	}
}

// TestExploreNoticesRows changes one row at a time, of the ledger's rules or of the Gate's
// conclusions. For each changed row, an exploration must find a violation, except for the rows
// in unnoticeableRows. While no row is changed, no exploration may find a violation. With
// -short, only every eighth changed row is tried.
func TestExploreNoticesRows(t *testing.T) {
	every := *exploreEvery
	switch {
	case raceDetectorIsOn():
		t.Log("the rows are changed one by one in the run without the race detector")
		return
	case testing.Short():
		every *= 8
	}
	t.Run("as they are", checkUnchangedRows)
	t.Run("rows", func(t *testing.T) {
		for i, row := range slices.Concat(changedEdges(), changedMeanings(), changedConclusions()) {
			if i%every != 0 {
				continue
			}
			if row.conclusions == nil {
				row.conclusions = x402.Conclusions()
			}
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				noticed := row.isNoticed(t)
				if _, expected := unnoticeableRows()[row.name]; noticed == expected {
					t.Errorf("noticed: %t", noticed)
				}
			})
		}
	})
}

// checkUnchangedRows checks that no exploration of a small world finds a violation while no
// row is changed.
func checkUnchangedRows(t *testing.T) {
	for _, w := range smallWorlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			x := explore(t, w, ledger.NewRules(), x402.Conclusions(), true)
			for what, story := range x.violationStories {
				t.Errorf("%s:\n%s", what, story)
			}
		})
	}
}

// isNoticed reports whether an exploration of a small world finds a violation with the changed
// row.
func (c changedRow) isNoticed(t *testing.T) bool {
	for _, w := range smallWorlds() {
		x := explore(t, w, c.rules, c.conclusions, true)
		for what := range x.violationStories {
			t.Logf("%s: %s", w.name, what)
			return true
		}
	}
	return false
}
