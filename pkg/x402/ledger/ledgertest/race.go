package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// raceCreate: of 50 creates at once one wins, and the others learn who.
func raceCreate(t *testing.T, s Whole) {
	const n = 50
	type outcome struct {
		existing *ledger.Record
		err      error
	}
	for round := range 3 {
		key := fmt.Sprintf("exercise|race create %d", round)
		sent := make([]ledger.Record, n)
		got := make([]outcome, n)
		atOnce(n, func(i int) {
			sent[i] = First(key)
			sent[i].Reason = fmt.Sprintf("writer %d", i)
			got[i].existing, got[i].err = s.Create(t.Context(), sent[i])
		})
		winner := -1
		for i, o := range got {
			switch {
			case o.err != nil:
				t.Errorf("writer %d: %v", i, o.err)
			case o.existing == nil && winner >= 0:
				t.Errorf("writers %d and %d both won", winner, i)
			case o.existing == nil:
				winner = i
			}
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		for i, o := range got {
			if o.existing != nil {
				same(t, sent[winner], *o.existing)
			} else if i != winner {
				t.Errorf("writer %d learnt nothing", i)
			}
		}
		Holds(t, s, sent[winner])
	}
}

// raceReplace: of several replaces from one version one wins, round after round.
func raceReplace(t *testing.T, s Whole) {
	const n, rounds = 12, 8
	current := First("exercise|race replace")
	MustCreate(t, s, current)
	for round := range rounds {
		sent := make([]ledger.Record, n)
		errs := make([]error, n)
		atOnce(n, func(i int) {
			sent[i] = Next(current)
			sent[i].Reason = fmt.Sprintf("round %d writer %d", round, i)
			errs[i] = s.Replace(t.Context(), sent[i])
		})
		var winners []int
		for i, err := range errs {
			switch {
			case err == nil:
				winners = append(winners, i)
			case !errors.Is(err, ledger.ErrConflict):
				t.Errorf("round %d, writer %d: %v", round, i, err)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: writers %v won, want exactly one", round, winners)
		}
		current = sent[winners[0]]
		Holds(t, s, current)
	}
}

// raceCount: writers that read, add one and try again on a conflict add up to
// their number.
func raceCount(t *testing.T, s Whole) {
	const n, each = 6, 8
	first := First("exercise|race count")
	first.Lookups = 0
	MustCreate(t, s, first)
	errs := make([]error, n)
	atOnce(n, func(i int) {
		for range each {
			if errs[i] = addOne(t.Context(), s, first.Key); errs[i] != nil {
				return
			}
		}
	})
	must(t, errors.Join(errs...))
	got, err := s.Fetch(t.Context(), first.Key)
	must(t, err)
	if got.Lookups != n*each || got.Version != n*each+1 {
		t.Errorf("counted %d in version %d, want %d in version %d", got.Lookups, got.Version, n*each, n*each+1)
	}
}

func addOne(ctx context.Context, s ledger.Store, key string) error {
	for range 1000 { // each conflict is somebody else's success
		r, err := s.Fetch(ctx, key)
		if err != nil {
			return err
		}
		next := Next(*r)
		next.Lookups++
		if err := s.Replace(ctx, next); !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
	return errors.New("there is no end of conflicts")
}

// atOnce calls f from n goroutines that start together.
func atOnce(n int, f func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
