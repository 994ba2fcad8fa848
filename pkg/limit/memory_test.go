package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Exercise(t, func(*testing.T) limittest.Store { return &limit.Memory{} })
}

// Counts of past windows are forgotten.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	var m limit.Memory
	add := func(window time.Time, want int) {
		t.Helper()
		if got, err := m.Add(t.Context(), "c", window, limit.Units{All: 1}); err != nil || got.All != want {
			t.Errorf("Add in %s = %+v, %v; want %d", window, got, err, want)
		}
	}
	add(noon, 1)
	add(noon.Add(limit.Window), 1)
	add(noon, 2) // a late report still counts
	add(noon.Add(2*limit.Window), 1)
	add(noon.Add(limit.Window), 2)
	add(noon, 1)
}

func BenchmarkSlotsMemory(b *testing.B) {
	for _, held := range []int{0, 49} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) { limittest.BenchSlots(b, &limit.Memory{}, held) })
	}
}
