package limit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

const client = "203.0.113.7"

var (
	noon    = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	errDown = errors.New("the store is down")
)

// same compares what there is with what is wanted.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func at(offset time.Duration) *limittest.Clock {
	var c limittest.Clock
	c.Set(noon.Add(offset))
	return &c
}

// store is a Memory that notes its calls, and fails as it is told.
type store = limittest.Watched

// added is what the calls since the last time added.
func added(s *store) (units []int) {
	for _, c := range s.Calls() {
		units = append(units, c.Units)
	}
	return units
}

// down, silent and slow are what a store does: it fails, it answers when its caller gives
// up, or it takes a tenth of a second, by the clock of a bubble.
func down(context.Context, limittest.Call) error { return errDown }

func silent(ctx context.Context, _ limittest.Call) error {
	<-ctx.Done()
	return ctx.Err()
}

func slow(context.Context, limittest.Call) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Exercise(t, func(*testing.T) limittest.Store { return &limit.Memory{} })
}

// Counts of past windows are forgotten.
func TestMemoryForgets(t *testing.T) {
	var m limit.Memory
	const w = limit.Window
	for i, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {w, 1}, {0, 2}, {2 * w, 1}, {w, 2}, {0, 1}} { // the third is a late report, which counts
		if got, err := m.Add(t.Context(), "c", noon.Add(c.after), limit.Units{All: 1}); err != nil || got.All != c.want {
			t.Errorf("Add %d = %+v, %v; want %d", i, got, err, c.want)
		}
	}
}

func TestNewPanics(t *testing.T) {
	good := limit.SlotsConfig{Operation: "dns", Cap: 1, Leases: &limit.Memory{}, Now: time.Now, NewID: func() string { return "x" }}
	limit.NewSlots(good)
	for i, spoil := range []func(*limit.SlotsConfig){
		func(c *limit.SlotsConfig) { c.Operation = "" },
		func(c *limit.SlotsConfig) { c.Cap = -1 },
		func(c *limit.SlotsConfig) { c.Leases = nil },
		func(c *limit.SlotsConfig) { c.Now = nil },
		func(c *limit.SlotsConfig) { c.NewID = nil },
	} {
		bad := good
		spoil(&bad)
		mustPanic(t, fmt.Sprint("slots ", i), func() { limit.NewSlots(bad) })
	}
	for i, c := range []limit.RateConfig{
		{PerMinute: -1}, {PerMinute: 1, Now: time.Now}, {PerMinute: 1, Counter: &limit.Memory{}}, {MaxClients: -1}, {StoreTimeout: -1},
	} {
		mustPanic(t, fmt.Sprint("rate ", i), func() { limit.NewRate(c) })
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
