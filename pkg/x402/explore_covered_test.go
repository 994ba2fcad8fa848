package x402_test

import (
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// coverage collects the rows of three tables that at least one world has reached: the edges of
// the ledger, the standings of the ledger, and the conclusions of the Gate.
type coverage struct {
	mu          sync.Mutex
	edges       map[int]bool
	conclusions map[int]bool
	standings   map[ledger.Standing]bool
	states      int
	transitions int
}

func newCoverage() *coverage {
	return &coverage{edges: map[int]bool{}, conclusions: map[int]bool{}, standings: map[ledger.Standing]bool{}}
}

func (c *coverage) add(x *explorer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, reached := range x.reachedEdges {
		c.edges[i] = c.edges[i] || reached
	}
	for i := range x.reachedConclusions {
		c.conclusions[i] = c.conclusions[i] || x.reachedConclusions[i].Load()
	}
	for s := range x.reachedStandings {
		c.standings[s] = true
	}
	c.states += len(x.states)
	c.transitions += x.transitions
}

// check fails the test for every row of the three tables that no world has reached.
func (c *coverage) check(t *testing.T) {
	t.Helper()
	for i, e := range ledger.NewRules().Edges {
		if !c.edges[i] {
			t.Errorf("edge %d was not reached: %s, %v, to %s", i, e.From, e.Events, e.To)
		}
	}
	for i, row := range x402.Conclusions() {
		if !c.conclusions[i] {
			t.Errorf("conclusion %d was not reached: %s", i, row)
		}
	}
	for s := range ledger.NewRules().Meanings {
		if !c.standings[ledger.Standing(s)] {
			t.Errorf("standing %d was not reached", s)
		}
	}
}
