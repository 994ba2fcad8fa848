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

// Op is a kind of call to a ledger.Store. Calls of Put are of two kinds.
type Op string

const (
	Create  Op = "create"  // Put of version 1
	Replace Op = "replace" // Put of a version other than 1
	Fetch   Op = "fetch"
)

// Fault says whether and how one call fails.
type Fault int

// A caller cannot tell FailBefore from FailAfter: no error of a store says whether the call
// took effect.
const (
	None       Fault = iota
	FailBefore       // the call fails and has no effect
	FailAfter        // the call takes effect and fails
)

// ErrInjected is the error of a call with the fault FailBefore or FailAfter.
var ErrInjected = errors.New("ledgertest: injected fault")

// Decide returns the fault of a call. n is the number of the call among the calls of its kind,
// counted from 1. For a Fetch, r has only the key. Decide runs on the goroutine of the call.
// If the test makes concurrent calls, Decide must be safe for concurrent use.
type Decide func(op Op, n int, r ledger.Record) Fault

// Failing returns a Decide that makes some calls of one kind fail. calls lists the numbers of
// these calls, counted from 1.
func Failing(op Op, how Fault, calls ...int) Decide {
	return func(o Op, n int, _ ledger.Record) Fault {
		if o == op && slices.Contains(calls, n) {
			return how
		}
		return None
	}
}

// Faulty is a ledger.Store that passes each call to another store, counts the call, and fails
// as Decide says. It fails the test if a caller replaces a version that no call has returned,
// or uses one write id for two different writes.
type Faulty struct {
	// Decide may be changed between two calls. If it is nil, no call fails.
	Decide Decide

	t     testing.TB
	store ledger.Store

	mu       sync.Mutex
	calls    map[Op]int
	returned map[slot]bool     // versions that a call has returned without an error
	writes   map[string]string // the stored form of every record that was written, by write id
}

type slot struct {
	key     string
	version int64
}

// NewFaulty returns a Faulty that passes its calls to store.
func NewFaulty(t testing.TB, store ledger.Store, decide Decide) *Faulty {
	return &Faulty{
		Decide:   decide,
		t:        t,
		store:    store,
		calls:    map[Op]int{},
		returned: map[slot]bool{},
		writes:   map[string]string{},
	}
}

// Calls returns the number of calls of a kind, including failed calls.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Put implements ledger.Store.
func (f *Faulty) Put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	f.t.Helper()
	f.check(r)
	op := Replace
	if r.Head().Version == 1 {
		op = Create
	}
	return f.call(op, r, func() (ledger.Record, error) { return f.store.Put(ctx, r) })
}

// check fails the test if a write replaces a version that no call has returned, or uses the
// write id of a different write. The same write may be repeated.
func (f *Faulty) check(r ledger.Record) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	head := r.Head()
	if head.Version > 1 && !f.returned[slot{head.Key, head.Version - 1}] {
		f.t.Errorf("ledgertest: version %d of %q is written, but nobody has seen version %d", head.Version, head.Key, head.Version-1)
	}
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		return // the store will return the error
	}
	write := string(doc) + "\n" + string(body)
	if first, used := f.writes[head.WriteID]; used && first != write {
		f.t.Errorf("ledgertest: write id %q of %q is used for two different writes", head.WriteID, head.Key)
	}
	f.writes[head.WriteID] = write
}

// Fetch implements ledger.Store.
func (f *Faulty) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	f.t.Helper()
	return f.call(Fetch, ledger.Payment{Row: ledger.Row{Key: key}}, func() (ledger.Record, error) { return f.store.Fetch(ctx, key) })
}

// MostKept implements ledger.Store.
func (f *Faulty) MostKept() int { return f.store.MostKept() }

// call counts a call, and passes it to the store unless Decide chose the fault FailBefore for
// it. If call returns a record without an error, it notes the record's version as one that the
// caller has seen.
func (f *Faulty) call(op Op, r ledger.Record, do func() (ledger.Record, error)) (ledger.Record, error) {
	f.t.Helper()
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	fault := None
	if f.Decide != nil {
		fault = f.Decide(op, n, r)
	}
	if fault == FailBefore {
		return nil, fmt.Errorf("%s: %w", op, ErrInjected)
	}
	found, err := do()
	if err == nil && fault == FailAfter {
		err = fmt.Errorf("%s: %w", op, ErrInjected)
	}
	if err != nil {
		return nil, err
	}
	if found != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.returned[slot{found.Head().Key, found.Head().Version}] = true
	}
	return found, nil
}
