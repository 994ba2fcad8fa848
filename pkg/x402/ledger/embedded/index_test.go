package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// The scan keeps what was untouched for longest, and never much more.
func TestOldestIsBounded(t *testing.T) {
	t.Parallel()
	const n, limit = 5000, 10
	o := oldest{limit: limit}
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	most := 0
	for _, i := range rand.Perm(n) {
		o.add(entry{key: fmt.Sprintf("%04d", i), at: at.Add(time.Duration(i) * time.Second)})
		most = max(most, len(o.entries))
	}
	var want []string
	for i := range limit {
		want = append(want, fmt.Sprintf("%04d", i))
	}
	if got := o.keys(); !slices.Equal(got, want) {
		t.Errorf("keys = %q, want %q", got, want)
	}
	if most > 2*limit+64 {
		t.Errorf("%d entries were kept", most)
	}
}

// What cannot be read has no state to be listed by, and stops no scan.
func TestIndexPassesCorruptRows(t *testing.T) {
	t.Parallel()
	s := planter{open(t, file(t), Options{})}
	for key, row := range map[string][]byte{"a": {1}, "c": pack([]byte("{"), nil)} {
		must(t, s.put(key, row))
	}
	ledgertest.MustCreate(t, s, ledgertest.First("b"))
	got, err := s.Open(t.Context(), time.Now().AddDate(100, 0, 0), 10)
	if err != nil || !slices.Equal(got, []string{"b"}) {
		t.Errorf("Open = %q, %v", got, err)
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
	err := s.db.Update(func(tx *bolt.Tx) error {
		for i := range 100 {
			if err := tx.Bucket(records).Put([]byte{byte(i)}, []byte("corrupt")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := &ended{Context: t.Context(), n: 5}
	if keys, err := s.Owed(ctx, 10); keys != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Owed = %q, %v; want the context's error", keys, err)
	}
	if ctx.n != -1 {
		t.Errorf("the context was asked %d times after its end", -1-ctx.n)
	}
}
