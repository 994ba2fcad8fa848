package x402_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The explorer walks through every state that a small world can reach, and checks what must
// hold in each, at every write and at every answer. It runs the code of production: the Gate
// from the moment at which a signer is known, the Ledger, the Reconciler, and the events that
// an operator's command writes.
//
// A process is a goroutine. Each call that leaves it is a step: of the store, a facilitator,
// the chain, the index, the work, and the pause between two looks at a record. The process
// stands still there until the explorer gives it one of the replies that are possible, at
// some instant. What a process does next depends on the replies that it got and on nothing
// else, so that a tree of them (node) stands for all that processes can do, and a state of the
// world is what is stored, what is on the chain, the instant, what may still happen, and where
// in the tree each process stands. Every state is visited once, the nearest first, so that
// the story of a violation is a shortest one.
//
// Each world names what bounds it (explored): how many requests, runs, crashes and faults,
// which words of the facilitator, which instants. In all of them there are at most two
// processes at once, and two authorizations of one payer for one purchase. After every state
// in which no process runs everybody is kind for some days: a payer repeats the last payment,
// or signs a third one, until it is answered.
//
// What makes states alike, and loses nothing:
//
//   - Two processes have no order (canon).
//   - While no process runs, nobody remembers versions, write ids and numbers of attempts, and
//     times that are over say no more than that (canonicalRecord).
//   - A process that looks at a record again and again is only woken when the record or the
//     time has changed.
//
// What is bounded, and may lose something: the clock goes from instant to instant, and while a
// process runs only as often as the world says; all clocks are the same; a write does not land
// after its error was told; an index is up to date; a facilitator does not say that it settled
// what it did not. Slots, meters, receipts and contract wallets are left out. The campaign has
// all of these.

var exploreWorld = flag.String("explore.world", "", "explore the world of this name alone")

// explore walks through a world. first says that it ends at the first violation.
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

// TestExplore: in no state of any of the worlds, and at no answer, is anything violated, and
// together they reach every row of the three tables.
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
