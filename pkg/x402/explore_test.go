package x402_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The explorer walks through every state that a small world can reach. It checks the rules of
// payment in each state, at every write and at every answer. It runs the production code: the
// Ledger, the Reconciler, the events that an operator's command writes, and the Gate from the
// point at which the signer is known (Gate.ServeSigned).
//
// A process serves one request, or runs the Reconciler or one command of an operator. It runs in
// goroutines of this test. A step is a call that a process makes to something outside it: the
// store, a facilitator, the chain, the index, the work, or the pause between two reads of a
// record. The process stops at the call until the explorer gives it one of the possible
// replies, at some instant. The next action of a process depends only on its task and on the
// replies that it got. Therefore a tree of replies (type node) for each task describes
// everything that processes can do.
//
// A state of the world consists of the stored records, the state of the chain, the instant, the
// events that may still happen, and the place of each process in its tree. Every state is
// visited once, and states that need fewer steps are visited first. Therefore the story of a
// violation is as short as possible.
//
// Each world (exploredWorld) names its bounds: the numbers of requests, runs of the Reconciler,
// crashes and faults, the replies of the facilitator, and the instants. Every world has at most
// two processes at once, and at most two authorizations of one payer for one purchase. From
// every state in which no process runs, the explorer also tries how the world continues during
// some days without faults. In one continuation, the payer repeats the last payment until there
// is an answer. In another, the payer signs a third payment and repeats that one.
//
// The explorer visits fewer states in these cases, without missing a violation:
//
//   - Two states that differ only in the order of the two processes count as one (canonicalState).
//   - While no process runs, versions, write ids and numbers of attempts make no difference, and
//     most times in the past only say that something is over. States that differ only in these
//     count as one (canonicalRecord).
//   - A process that waits for a record to change is woken only when the record or the time has
//     changed, or when its time for waiting is over.
//
// The explorer makes assumptions that may hide a violation. The clock jumps from instant to
// instant. While a process runs, the clock jumps only as often as the world allows. All clocks
// are the same. A write takes effect before its caller gets the reply, or never. The index is
// always up to date. A facilitator does not claim a settlement that did not happen. Slots,
// meters, receipts and contract wallets are left out. TestCampaign covers what these assumptions
// leave out.

var exploreWorld = flag.String("explore.world", "", "explore the world of this name alone")

// explore walks through a world whose Ledger and Gate follow the given rules and conclusions.
// If stopAtFirst is true, the walk ends at the first violation.
func explore(t *testing.T, w exploredWorld, rules ledger.Rules, conclusions []x402.Conclusion, stopAtFirst bool) *explorer {
	t.Helper()
	var x *explorer
	synctest.Test(t, func(t *testing.T) {
		x = newExplorer(t, w, rules, conclusions)
		x.stopAtFirst = stopAtFirst
		x.walk()
	})
	return x
}

// TestExplore walks through every world. No state, no write and no answer may violate a rule.
// Together, the worlds must reach every edge and every standing of the ledger, and every
// conclusion of the Gate. With the race detector, TestExplore walks only through a few small
// worlds, and does not check what they reach.
func TestExplore(t *testing.T) {
	worlds, all := exploredWorlds(), *exploreWorld == ""
	if raceDetectorIsOn() && all {
		worlds, all = smallWorlds()[:cheapWorldCount], false
	}
	reached := newCoverage()
	t.Run("worlds", func(t *testing.T) {
		for _, w := range worlds {
			if *exploreWorld != "" && *exploreWorld != w.name {
				continue
			}
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				x := explore(t, w, ledger.NewRules(), x402.Conclusions(), false)
				t.Logf("%d states, %d transitions, %s", len(x.states), x.transitions, time.Since(begun).Round(time.Millisecond))
				for what, story := range x.violationStories {
					t.Errorf("%s:\n%s", what, story)
				}
				reached.add(x)
			})
		}
	})
	t.Logf("%d states, %d transitions", reached.states, reached.transitions)
	if all {
		reached.check(t)
	}
}
