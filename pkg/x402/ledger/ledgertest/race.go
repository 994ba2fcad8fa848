package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// raceCreate: of 50 creates at once one wins, and the others learn who.
func raceCreate(t *testing.T, s Planter) {
	const n = 50
	for round := range 3 {
		var sent [n]ledger.Record
		var existing [n]*ledger.Record
		var errs [n]error
		atOnce(n, func(i int) {
			sent[i] = First(fmt.Sprintf("exercise|race create %d", round))
			existing[i], errs[i] = s.Create(t.Context(), sent[i])
		})
		must(t, errors.Join(errs[:]...))
		winner := slices.Index(existing[:], nil)
		if winner < 0 {
			t.Fatal("nobody won")
		}
		for i, r := range existing {
			if r != nil {
				same(t, sent[winner], *r)
			} else if i != winner {
				t.Errorf("writers %d and %d both won", winner, i)
			}
		}
		Holds(t, s, sent[winner])
	}
}

// raceCount: writers that read, add one and try again on a conflict add up to
// their number.
func raceCount(t *testing.T, s Planter) {
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
