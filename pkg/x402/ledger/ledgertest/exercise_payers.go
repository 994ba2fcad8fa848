package ledgertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ExercisePayers runs the contract of ledger.Payers against that of a store. open
// returns an empty store, once for every case; the cases run in parallel.
func ExercisePayers(t *testing.T, open func(t *testing.T) (ledger.Store, ledger.Payers)) {
	exerciseView(t, open, []viewCase[ledger.Payers]{
		{"empty", payersEmpty},
		{"every state", payersStates},
		{"nobody else's", payersOthers},
		{"limit", payersLimit},
		{"sees every write", payersFresh},
		{"ended context", payersEndedContext},
	})
}

func payersEmpty(t *testing.T, _ ledger.Store, p ledger.Payers) {
	paidBy(t, p, "exercise|", nil)
}

func payersStates(t *testing.T, s ledger.Store, p ledger.Payers) {
	var want []string
	for _, state := range ledger.States() {
		r := sleeping("exercise|a|"+string(state), state, noon())
		mustCreate(t, s, r)
		want = append(want, r.Key)
	}
	slices.Sort(want)
	paidBy(t, p, "exercise|a|", want)
}

// payersOthers: a prefix is bytes, whatever they mean elsewhere.
func payersOthers(t *testing.T, s ledger.Store, p ledger.Payers) {
	for _, key := range []string{
		"exercise|a", "exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8", "exercise|aa|1", "exercise|A|1", "exercise|b|1",
		"exercise|%|1", "exercise|_|1", "exercise|*|1", "cursor|exercise|a|1", "id|exercise|a|1", "x exercise|a|1",
	} {
		mustCreate(t, s, First(key))
	}
	paidBy(t, p, "exercise|a|", []string{"exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8"})
	paidBy(t, p, "exercise|%|", []string{"exercise|%|1"})
	paidBy(t, p, "exercise|_|", []string{"exercise|_|1"})
	paidBy(t, p, "exercise|*|", []string{"exercise|*|1"})
	paidBy(t, p, "exercise|c|", nil)
}

func payersLimit(t *testing.T, s ledger.Store, p ledger.Payers) {
	const n = 25
	for _, i := range rand.Perm(n) {
		mustCreate(t, s, First(fmt.Sprintf("exercise|a|%02d", i)))
		mustCreate(t, s, First(fmt.Sprintf("exercise|b|%02d", i)))
	}
	for _, limit := range []int{-1, 0, 1, 7, n - 1, n, n + 1, 1 << 20} {
		got, err := p.ByPayer(t.Context(), "exercise|a|", limit)
		foreign := slices.ContainsFunc(got, func(k string) bool { return !strings.HasPrefix(k, "exercise|a|") })
		if err != nil || len(got) != max(min(limit, n), 0) || foreign || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("ByPayer with limit %d = %q, %v", limit, got, err)
		}
	}
}

func payersFresh(t *testing.T, s ledger.Store, p ledger.Payers) {
	var want []string
	for i := range 10 {
		r := First(fmt.Sprintf("exercise|a|%d", i))
		mustCreate(t, s, r)
		want = append(want, r.Key)
		paidBy(t, p, "exercise|a|", want)
		mustReplace(t, s, Next(r))
		paidBy(t, p, "exercise|a|", want)
	}
}

func payersEndedContext(t *testing.T, s ledger.Store, p ledger.Payers) {
	mustCreate(t, s, First("exercise|a|1"))
	checkEnded(t, "ByPayer", func(ctx context.Context) ([]string, error) { return p.ByPayer(ctx, "exercise|a|", 10) })
}

func paidBy(t *testing.T, p ledger.Payers, prefix string, want []string) {
	t.Helper()
	got, err := p.ByPayer(t.Context(), prefix, 1000)
	checkKeys(t, fmt.Sprintf("ByPayer %q", prefix), want, got, err)
}
