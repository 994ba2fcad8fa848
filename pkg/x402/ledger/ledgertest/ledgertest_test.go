package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	Exercise(t, func(*testing.T) Whole { return new(Memory) })
}

// Keys are all keys, those of corrupt records too, which no list can place.
func TestMemoryKeys(t *testing.T) {
	t.Parallel()
	m := new(Memory)
	if keys := m.Keys(); len(keys) != 0 {
		t.Errorf("an empty store has keys %q", keys)
	}
	for _, r := range []ledger.Record{Full("b"), First("a")} {
		MustCreate(t, m, r)
	}
	must(t, m.Plant(t.Context(), "c", []byte("{")))
	if keys := m.Keys(); !slices.Equal(keys, []string{"a", "b", "c"}) {
		t.Errorf("Keys = %q", keys)
	}
	lists(t, m, []string{"a"}, nil)
}

// A field that Full leaves empty would not be tested by the round trip.
func TestFullIsFull(t *testing.T) {
	t.Parallel()
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		if v.IsZero() {
			t.Errorf("%s is empty", name)
			return
		}
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			walk(name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
	walk("Record", reflect.ValueOf(Full("k")))
}

// recorder is a testing.TB that collects complaints.
type recorder struct {
	testing.TB
	mu  sync.Mutex
	got []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, fmt.Sprintf(format, args...))
}

func TestFaultyFails(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FailBefore, FailAfter} {
		t.Run(map[Fault]string{FailBefore: "before", FailAfter: "after"}[fault], func(t *testing.T) {
			t.Parallel()
			m := new(Memory)
			f := NewFaulty(t, m, func(op Op, n int, r ledger.Record) Fault {
				if r.Key != "k" {
					t.Errorf("decide is given key %q", r.Key)
				}
				if n == 1 {
					return fault
				}
				return None
			})
			done := fault == FailAfter
			first := First("k")
			if existing, err := f.Create(t.Context(), first); existing != nil || !errors.Is(err, ErrInjected) {
				t.Fatalf("Create = %v, %v", existing, err)
			}
			if got := m.Len() == 1; got != done {
				t.Errorf("written: %v, want %v", got, done)
			}
			MustCreate(t, f, first) // the same write again
			second := Next(first)
			if err := f.Replace(t.Context(), second); !errors.Is(err, ErrInjected) {
				t.Fatalf("Replace = %v", err)
			}
			want := first
			if done {
				want = second
			}
			Holds(t, m, want)
			MustReplace(t, f, second)
			if r, err := f.Fetch(t.Context(), "k"); r != nil || !errors.Is(err, ErrInjected) {
				t.Errorf("Fetch = %v, %v", r, err)
			}
			Holds(t, f, second)
			for _, op := range []Op{Create, Replace, Fetch} {
				if n := f.Calls(op); n != 2 {
					t.Errorf("%d calls of %s, want 2", n, op)
				}
			}
		})
	}
}

func TestFaultyStale(t *testing.T) {
	t.Parallel()
	f := NewFaulty(t, new(Memory), func(op Op, _ int, _ ledger.Record) Fault {
		if op == Fetch {
			return Stale
		}
		return None
	})
	first := Full("k")
	MustCreate(t, f, first)
	holdsNothing(t, f, "k")
	MustReplace(t, f, Next(first))
	Holds(t, f, first)
}

func TestFaultyBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		f := NewFaulty(t, m, func(Op, int, ledger.Record) Fault { return Block })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := f.Create(ctx, First("k")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Create = %v, want the context's error", err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("it blocked for %v", d)
		}
		if m.Len() != 0 {
			t.Error("it wrote")
		}
	})
}

func TestFaultyComplains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decide Decide
		use    func(ctx context.Context, f *Faulty)
		want   string // "" for no complaint
	}{
		"legal use": {nil, func(ctx context.Context, f *Faulty) {
			r := First("k")
			_, _ = f.Create(ctx, r)
			_, _ = f.Create(ctx, r)
			_ = f.Replace(ctx, Next(r))
			_ = f.Replace(ctx, Next(r))
		}, ""},
		"legal use of what was read": {nil, func(ctx context.Context, f *Faulty) {
			_, _ = f.store.Create(ctx, First("k"))
			r, _ := f.Fetch(ctx, "k")
			_ = f.Replace(ctx, Next(*r))
		}, ""},
		"legal use of what was in the way": {nil, func(ctx context.Context, f *Faulty) {
			_, _ = f.store.Create(ctx, First("k"))
			r, _ := f.Create(ctx, First("k"))
			_ = f.Replace(ctx, Next(*r))
		}, ""},
		"create of version 2": {nil, func(ctx context.Context, f *Faulty) {
			_, _ = f.Create(ctx, Next(First("k")))
		}, "Create of version 2"},
		"unread version": {nil, func(ctx context.Context, f *Faulty) {
			_ = f.Replace(ctx, Next(First("k")))
		}, "nobody has seen version 1"},
		"skipped version": {nil, func(ctx context.Context, f *Faulty) {
			r := First("k")
			_, _ = f.Create(ctx, r)
			_ = f.Replace(ctx, Next(Next(r)))
		}, "nobody has seen version 2"},
		"version of an unacknowledged write": {Failing(Create, FailAfter, 1), func(ctx context.Context, f *Faulty) {
			r := First("k")
			_, _ = f.Create(ctx, r)
			_ = f.Replace(ctx, Next(r))
		}, "nobody has seen version 1"},
		"version of another key": {nil, func(ctx context.Context, f *Faulty) {
			_, _ = f.Create(ctx, First("k"))
			_ = f.Replace(ctx, Next(First("l")))
		}, "nobody has seen version 1"},
		"write id used twice": {nil, func(ctx context.Context, f *Faulty) {
			r := First("k")
			_, _ = f.Create(ctx, r)
			r.Version = 2
			_ = f.Replace(ctx, r)
		}, "two different writes"},
		"write id of another body": {nil, func(ctx context.Context, f *Faulty) {
			r := Full("k")
			_, _ = f.Create(ctx, r)
			r.Answer.Body = []byte("other")
			_, _ = f.Create(ctx, r)
		}, "two different writes"},
		"stale write": {Failing(Create, Stale, 1), func(ctx context.Context, f *Faulty) {
			_, _ = f.Create(ctx, First("k"))
		}, "Stale is a fault of fetch"},
		"block for ever": {Failing(Fetch, Block, 1), func(_ context.Context, f *Faulty) {
			_, _ = f.Fetch(context.Background(), "k")
		}, "never ends"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{TB: t}
			c.use(t.Context(), NewFaulty(rec, new(Memory), c.decide))
			got := strings.Join(rec.got, "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || len(rec.got) > 1 {
				t.Errorf("complaints:\n%s\nwant one with %q", got, c.want)
			}
		})
	}
}

func TestFaultyCountsConcurrentCalls(t *testing.T) {
	t.Parallel()
	f := NewFaulty(t, new(Memory), nil)
	seen := make([]bool, 101)
	var mu sync.Mutex
	f.decide = func(_ Op, n int, _ ledger.Record) Fault {
		mu.Lock()
		defer mu.Unlock()
		if seen[n] {
			t.Errorf("two calls have number %d", n)
		}
		seen[n] = true
		return None
	}
	atOnce(100, func(int) { _, _ = f.Fetch(t.Context(), "k") })
	if n := f.Calls(Fetch); n != 100 {
		t.Errorf("%d calls, want 100", n)
	}
}
