package x402_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The explorer walks through every state that a small world can reach. It checks what must
// hold in each state, at every write and at every answer. It runs the production code: the
// Ledger, the Reconciler, the events that an operator's command writes, and the Gate from the
// moment at which the signer is known.
//
// A process is a goroutine. A step is a call that a process makes to something outside it: the
// store, a facilitator, the chain, the index, the work, or the pause between two reads of a
// record. The process stops at the call until the explorer gives it one of the possible
// replies, at some instant. The next action of a process depends only on the replies that it
// got. Therefore a tree of replies (type node) describes everything that processes can do. A
// state of the world consists of the stored records, the state of the chain, the instant, the
// events that may still happen, and the place of each process in the tree. Every state is
// visited once, and states that need fewer steps are visited first. Therefore the story of a
// violation is as short as possible.
//
// Each world (type explored) names its bounds: the numbers of requests, runs, crashes and
// faults, the replies of the facilitator, and the instants. Every world has at most two
// processes at once, and at most two authorizations of one payer for one purchase. After every
// state in which no process runs, the explorer tries some days without faults: a payer repeats
// the last payment, or signs a third payment, until there is an answer.
//
// Different states count as the same in these cases, in which nothing is lost:
//
//   - The order of two processes does not matter (canon).
//   - While no process runs, nobody remembers versions, write ids and numbers of attempts, and
//     a time in the past says only that it is over (canonicalRecord).
//   - A process that reads a record again and again is woken only when the record or the
//     time has changed.
//
// The explorer makes assumptions that may hide a fault. The clock jumps from instant to instant,
// and while a process runs, it jumps only as often as the world allows. All clocks are the same.
// A write does not take effect after its caller got an error. An index is up to date. A
// facilitator does not claim a settlement that did not happen. Slots, meters, receipts and
// contract wallets are left out. The campaign covers all of this.

var exploreWorld = flag.String("explore.world", "", "explore the world of this name alone")

// explore walks through a world. If first is true, the walk ends at the first violation.
func explore(t *testing.T, w explored, rules ledger.Rules, conclusions []x402.Conclusion, first bool) *explorer {
	t.Helper()
	var x *explorer
	synctest.Test(t, func(t *testing.T) {
		x = newExplorer(t, w, rules, conclusions)
		x.stopAtFirst = first
		x.walk()
	})
	return x
}

// TestExplore checks that no state and no answer in any world violates a rule, and that the
// worlds together reach every edge and every standing of the ledger, and every conclusion of
// the Gate.
func TestExplore(t *testing.T) {
	worlds, all := exploredWorlds(), *exploreWorld == ""
	if raceDetector() && all {
		worlds, all = smallWorlds()[:cheapWorlds], false
	}
	reached := newCovered()
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
				for what, story := range x.traces {
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
