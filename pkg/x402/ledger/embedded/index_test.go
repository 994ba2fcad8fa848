package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The scan keeps what was untouched for longest, and never much more.
func TestOldestIsBounded(t *testing.T) {
	t.Parallel()
	const n, limit = 5000, 10
	o := oldest{limit: limit}
	most := 0
	for _, i := range rand.Perm(n) {
		o.add(entry{key: fmt.Sprintf("%04d", i), at: time.Unix(int64(i), 0)})
		most = max(most, len(o.entries))
	}
	want := []string{"0000", "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009"}
	if got := o.keys(); !slices.Equal(got, want) || most > 2*limit+64 {
		t.Errorf("keys = %q, want %q; %d entries were kept", got, want, most)
	}
}

// ended is a context that ends once it has been asked n times.
type ended struct {
	context.Context
	n int
}

func (e *ended) Err() error {
	if e.n--; e.n < 0 {
		return context.Canceled
	}
	return nil
}

// A scan ends with its context, and not with the file.
func TestScanEndsWithContext(t *testing.T) {
	t.Parallel()
	s := planter{open(t, file(t), Options{})}
	for i := range 20 {
		must(t, s.put(fmt.Sprint(i), []byte("corrupt")))
	}
	ctx := &ended{Context: t.Context(), n: 5}
	if keys, err := s.Owed(ctx, 10); keys != nil || !errors.Is(err, context.Canceled) || ctx.n != -1 {
		t.Errorf("Owed = %q, %v; want the context's error; it was asked %d times after its end", keys, err, -1-ctx.n)
	}
}
