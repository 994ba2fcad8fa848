package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func indexCases() cases {
	return cases{
		"empty": indexEmpty, "states": indexStates, "a record moves": indexMoves,
		"longest untouched first": indexOrder, "none whose lease ends later": indexBefore,
		"limit": indexLimit, "a write moves to the end": indexRewrite, "odd keys": indexOddKeys,
		"ended context": indexEndedContext,
	}
}

// never is later than any lease of this suite.
func never() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }

// sleeping is a record in a state, last written at a time, without a lease.
func sleeping(key string, state ledger.State, at time.Time) ledger.Record {
	r := First(key)
	r.State, r.UpdatedAt, r.LeaseUntil = state, at, time.Time{}
	return r
}

func noon() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func indexEmpty(t *testing.T, s Whole) {
	lists(t, s, nil, nil)
}

func indexStates(t *testing.T, s Whole) {
	for i, state := range ledger.States() {
		MustCreate(t, s, sleeping("exercise|"+string(state), state, noon().Add(time.Duration(i)*time.Second)))
	}
	lists(t, s, []string{"exercise|settling", "exercise|uncertain"}, []string{"exercise|settled"})
	for i, state := range ledger.States() {
		r := sleeping("exercise|leased "+string(state), state, noon().Add(time.Hour+time.Duration(i)*time.Second))
		r.LeaseUntil = r.UpdatedAt.Add(time.Second)
		MustCreate(t, s, r)
	}
	lists(t, s, []string{
		"exercise|settling", "exercise|uncertain",
		"exercise|leased settling", "exercise|leased uncertain", "exercise|leased settled",
	}, []string{"exercise|settled"})
}

func indexMoves(t *testing.T, s Whole) {
	r := First("exercise|moves")
	key := []string{r.Key}
	MustCreate(t, s, r)
	lists(t, s, key, nil)
	for _, step := range []struct {
		to         ledger.State
		leased     bool
		open, owed []string
	}{
		{ledger.Uncertain, false, key, nil},
		{ledger.Settling, true, key, nil},
		{ledger.Refused, false, nil, nil},
		{ledger.Settling, true, key, nil},
		{ledger.Settled, true, key, nil},
		{ledger.Settled, false, nil, key},
		{ledger.Settled, true, key, nil},
		{ledger.Settled, false, nil, key},
		{ledger.Redeemed, false, nil, nil},
	} {
		r = Next(r)
		r.State, r.LeaseUntil = step.to, time.Time{}
		if step.leased {
			r.LeaseUntil = r.UpdatedAt.Add(time.Minute)
		}
		MustReplace(t, s, r)
		lists(t, s, step.open, step.owed)
	}
}

func indexOrder(t *testing.T, s Whole) {
	const n = 60 // enough for every partition of a store that has some
	var open, owed []string
	for i := range n {
		open, owed = append(open, fmt.Sprintf("exercise|open|%d", i)), append(owed, fmt.Sprintf("exercise|owed|%d", i))
	}
	for _, i := range rand.Perm(n) { // the order of the writes does not matter
		at := noon().Add(time.Duration(i) * time.Second)
		doubt := sleeping(open[i], ledger.Settling, at)
		switch i % 3 { // the end of a lease counts like a last write
		case 1:
			doubt.UpdatedAt, doubt.LeaseUntil = at.Add(-time.Hour), at
		case 2:
			doubt.State, doubt.UpdatedAt, doubt.LeaseUntil = ledger.Settled, at.Add(-time.Hour), at
		}
		MustCreate(t, s, doubt)
		MustCreate(t, s, sleeping(owed[i], ledger.Settled, at))
	}
	lists(t, s, open, owed)
}

func indexBefore(t *testing.T, s Whole) {
	at := noon()
	leased := sleeping("exercise|leased", ledger.Settling, at.Add(-time.Minute))
	leased.LeaseUntil = at
	fine := sleeping("exercise|fine", ledger.Settling, at.Add(-time.Minute))
	fine.LeaseUntil = at.Add(300 * time.Nanosecond)
	stale := sleeping("exercise|written", ledger.Uncertain, at.Add(time.Minute))
	stale.LeaseUntil = at.Add(-time.Hour) // over, and then somebody wrote
	for _, r := range []ledger.Record{leased, fine, stale} {
		MustCreate(t, s, r)
	}
	for before, want := range map[time.Time][]string{
		at.Add(-time.Nanosecond):               nil,
		at.Add(-time.Millisecond):              nil,
		at:                                     {leased.Key},
		at.Add(200 * time.Nanosecond):          {leased.Key},
		at.Add(time.Millisecond):               {leased.Key, fine.Key},
		at.Add(time.Minute - time.Millisecond): {leased.Key, fine.Key},
		at.Add(time.Minute):                    {leased.Key, fine.Key, stale.Key},
		at.Add(time.Minute).In(time.FixedZone("", 3600)): {leased.Key, fine.Key, stale.Key},
	} {
		got, err := s.Open(t.Context(), before, 10)
		checkKeys(t, fmt.Sprintf("Open before noon%+v", before.Sub(at)), want, got, err)
	}
}

func indexLimit(t *testing.T, s Whole) {
	const n = 40
	var open, owed []string
	for i := range n {
		at := noon().Add(time.Duration(i) * time.Second)
		a := sleeping(fmt.Sprintf("exercise|open|%d", i), ledger.Uncertain, at)
		b := sleeping(fmt.Sprintf("exercise|owed|%d", i), ledger.Settled, at)
		MustCreate(t, s, a)
		MustCreate(t, s, b)
		open, owed = append(open, a.Key), append(owed, b.Key)
	}
	for _, limit := range []int{-1, 0, 1, 7, n - 1, n, n + 1, 1 << 20} {
		k := max(min(limit, n), 0)
		got, err := s.Open(t.Context(), never(), limit)
		if !slices.Equal(got, open[:k]) || err != nil {
			t.Errorf("Open with limit %d = %q, %v; want the first %d of %q", limit, got, err, k, open)
		}
		got, err = s.Owed(t.Context(), limit)
		if !slices.Equal(got, owed[:k]) || err != nil {
			t.Errorf("Owed with limit %d = %q, %v; want the first %d of %q", limit, got, err, k, owed)
		}
	}
}

// indexRewrite: whoever is looked at in vain makes room for the others.
func indexRewrite(t *testing.T, s Whole) {
	var all []ledger.Record
	for i := range 5 {
		r := sleeping(fmt.Sprintf("exercise|%d", i), ledger.Uncertain, noon().Add(time.Duration(i)*time.Second))
		MustCreate(t, s, r)
		all = append(all, r)
	}
	for i := range all {
		r := Next(all[i])
		r.UpdatedAt = noon().Add(time.Hour + time.Duration(i)*time.Second)
		MustReplace(t, s, r)
		var want []string
		for j := range all {
			want = append(want, all[(i+1+j)%len(all)].Key)
		}
		lists(t, s, want, nil)
	}
}

func indexOddKeys(t *testing.T, s Whole) {
	var want []string
	for i, k := range []string{"", " ", "\x00", `"`, `\`, "é", "\u2028", "\U0001f4b8", strings.Repeat("k", maxKey-len("exercise|"))} {
		r := sleeping("exercise|"+k, ledger.Uncertain, noon().Add(time.Duration(i)*time.Second))
		MustCreate(t, s, r)
		want = append(want, r.Key)
	}
	lists(t, s, want, nil)
}

func indexEndedContext(t *testing.T, s Whole) {
	MustCreate(t, s, First("exercise|context"))
	checkEnded(t, "Open", func(ctx context.Context) ([]string, error) { return s.Open(ctx, never(), 10) })
	checkEnded(t, "Owed", func(ctx context.Context) ([]string, error) { return s.Owed(ctx, 10) })
}

// lists checks both lists of an index.
func lists(t *testing.T, x ledger.Index, open, owed []string) {
	t.Helper()
	got, err := x.Open(t.Context(), never(), 1000)
	checkKeys(t, "Open", open, got, err)
	got, err = x.Owed(t.Context(), 1000)
	checkKeys(t, "Owed", owed, got, err)
}

func payersCases() cases {
	return cases{
		"empty": payersEmpty, "every state": payersStates, "nobody else's": payersOthers,
		"limit": payersLimit, "sees every write": payersFresh, "ended context": payersEndedContext,
	}
}

func payersEmpty(t *testing.T, s Whole) {
	paidBy(t, s, "exercise|", nil)
}

func payersStates(t *testing.T, s Whole) {
	var want []string
	for _, state := range ledger.States() {
		r := sleeping("exercise|a|"+string(state), state, noon())
		MustCreate(t, s, r)
		want = append(want, r.Key)
	}
	slices.Sort(want)
	paidBy(t, s, "exercise|a|", want)
}

// payersOthers: a prefix is bytes, whatever they mean elsewhere.
func payersOthers(t *testing.T, s Whole) {
	for _, key := range []string{
		"exercise|a", "exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8", "exercise|aa|1", "exercise|A|1", "exercise|b|1",
		"exercise|%|1", "exercise|_|1", "exercise|*|1", "cursor|exercise|a|1", "id|exercise|a|1", "x exercise|a|1",
	} {
		MustCreate(t, s, First(key))
	}
	paidBy(t, s, "exercise|a|", []string{"exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8"})
	paidBy(t, s, "exercise|%|", []string{"exercise|%|1"})
	paidBy(t, s, "exercise|_|", []string{"exercise|_|1"})
	paidBy(t, s, "exercise|*|", []string{"exercise|*|1"})
	paidBy(t, s, "exercise|c|", nil)
}

func payersLimit(t *testing.T, s Whole) {
	const n = 25
	for _, i := range rand.Perm(n) {
		MustCreate(t, s, First(fmt.Sprintf("exercise|a|%02d", i)))
		MustCreate(t, s, First(fmt.Sprintf("exercise|b|%02d", i)))
	}
	for _, limit := range []int{-1, 0, 1, 7, n - 1, n, n + 1, 1 << 20} {
		got, err := s.ByPayer(t.Context(), "exercise|a|", limit)
		foreign := slices.ContainsFunc(got, func(k string) bool { return !strings.HasPrefix(k, "exercise|a|") })
		if err != nil || len(got) != max(min(limit, n), 0) || foreign || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("ByPayer with limit %d = %q, %v", limit, got, err)
		}
	}
}

func payersFresh(t *testing.T, s Whole) {
	var want []string
	for i := range 10 {
		r := First(fmt.Sprintf("exercise|a|%d", i))
		MustCreate(t, s, r)
		want = append(want, r.Key)
		paidBy(t, s, "exercise|a|", want)
		MustReplace(t, s, Next(r))
		paidBy(t, s, "exercise|a|", want)
	}
}

func payersEndedContext(t *testing.T, s Whole) {
	MustCreate(t, s, First("exercise|a|1"))
	checkEnded(t, "ByPayer", func(ctx context.Context) ([]string, error) { return s.ByPayer(ctx, "exercise|a|", 10) })
}

func paidBy(t *testing.T, p ledger.Payers, prefix string, want []string) {
	t.Helper()
	got, err := p.ByPayer(t.Context(), prefix, 1000)
	checkKeys(t, fmt.Sprintf("ByPayer %q", prefix), want, got, err)
}

// checkKeys compares a list of keys, of the call that what names, with the one that
// it should be.
func checkKeys(t *testing.T, what string, want, got []string, err error) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s (-want +got), %v:\n%s", what, err, diff)
	}
}

// checkEnded checks that a call gives no keys and the error of its context, which
// has ended.
func checkEnded(t *testing.T, what string, list func(context.Context) ([]string, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if keys, err := list(ctx); !errors.Is(err, context.Canceled) || keys != nil {
		t.Errorf("%s = %q, %v; want the context's error", what, keys, err)
	}
}
