package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Store keeps records and compares before it swaps. It is the whole of what
// differs between DynamoDB and a file; every rule is above it, in Ledger.
//
// A call that returns an error other than those named here may or may not have
// taken effect. Every call ends by itself within some seconds, also when ctx has no
// end: verdicts about money are written under such a context.
// Every Store passes ledgertest.Exercise.
type Store interface {
	// Create writes a record whose key is absent. When the key is taken it
	// writes nothing and returns the record that is there. When the record
	// that is there carries the same WriteID, this very write had already
	// succeeded (a client library sent it twice), and Create returns nil.
	Create(ctx context.Context, r Record) (existing *Record, err error)

	// Replace writes a record over the one whose version is r.Version-1.
	// ErrConflict means that the stored version is another one, or that there
	// is no such record, and that nothing was written. A stored record with
	// the same WriteID counts as success, as in Create.
	Replace(ctx context.Context, r Record) error

	// Fetch reads a record, consistently: it sees every write that has
	// succeeded. It returns nil without an error when there is none.
	Fetch(ctx context.Context, key string) (*Record, error)
}

// ErrConflict says that another writer came first.
var ErrConflict = errors.New("ledger: the stored version is another one")

// ErrCorrupt says that what is stored cannot be read as a record. It fails
// closed: nothing is settled and nothing is served on it.
var ErrCorrupt = errors.New("ledger: stored record is corrupt")

// Index lists records that are not over, for the reconciler and for operators.
// It may be behind the store by some seconds, so that the record is fetched
// before anything is done about it.
//
// A list is in the order of its Places, from the one behind after on, limit at most.
// One that is shorter is the end. A record that is written while a list is read moves
// towards its end, so that it can be met again there.
type Index interface {
	// ListInDoubt lists records that an attempt has, or had, in hand: those that are
	// ListedIn ListOpen, none whose lease ends after before. A payment that is answered
	// in one go never leaves this list, so that a store writes its index twice for it,
	// and not four times.
	ListInDoubt(ctx context.Context, before time.Time, after Place, limit int) ([]Place, error)

	// ListOwed lists the other records that are paid and not answered.
	ListOwed(ctx context.Context, after Place, limit int) ([]Place, error)
}

// Place is where a record stands in a list of an Index: those untouched for longest
// come first. The zero Place is before all of them.
type Place struct {
	At  time.Time // the record's ListedAt; an index may round it up to milliseconds
	Key string
}

// Compare orders places, as cmp.Compare does.
func (p Place) Compare(q Place) int {
	return cmp.Or(p.At.Compare(q.At), cmp.Compare(p.Key, q.Key))
}

// FirstPlaces are the first of some places behind after, in their order, limit at most.
func FirstPlaces(all []Place, after Place, limit int) []Place {
	all = slices.DeleteFunc(all, func(p Place) bool { return p.Compare(after) <= 0 })
	slices.SortFunc(all, Place.Compare)
	return all[:max(min(limit, len(all)), 0)]
}

// Payers lists what there is of one payer, for operators: records in every state,
// also those that an Index has no reason to list. It may have to read the whole
// store.
type Payers interface {
	// ByPayer lists the keys that begin with prefix (see PayerPrefix), in their
	// order, at most limit. Where there are more, the store chooses which. It sees
	// every write that succeeded before the call.
	ByPayer(ctx context.Context, prefix string, limit int) ([]string, error)
}

// Rows reads a whole store, page by page, for operators.
type Rows interface {
	// Page reads at most limit rows: those behind the key after, in an order of the
	// store's own, or the first ones where after is empty. It may be behind the
	// store by some seconds. A row that is written while pages are read is in one of
	// them, as it was before or after that.
	Page(ctx context.Context, after string, limit int) (Page, error)
}

// Page is a part of a store.
type Page struct {
	Records []Record // without the bodies of answers
	Corrupt []string // keys of rows that cannot be read
	// Next is what the next page comes after; empty when nothing is left.
	Next string
}
