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
// A call that returns an error may or may not have taken effect. Every call ends by
// itself within some seconds, also when ctx has no end: verdicts about money are written
// under such a context. Every Store passes ledgertest.Exercise.
type Store interface {
	// Put writes a record over the version before its own, or under a key that is
	// free where its version is 1. It returns the record that stands then. Where that
	// has the WriteID of r, this very write has succeeded, now or when a client
	// library sent it for the first time. Otherwise nothing was written: another
	// record is in the way, or none is there any more (nil).
	Put(ctx context.Context, r Record) (stands *Record, err error)

	// Fetch reads a record, consistently: it sees every write that has
	// succeeded. It returns nil without an error when there is none.
	Fetch(ctx context.Context, key string) (*Record, error)
}

// ErrConflict says that another writer came first.
var ErrConflict = errors.New("ledger: the stored version is another one")

// ErrCorrupt says that what is stored cannot be read as a record. It fails
// closed: nothing is settled and nothing is served on it.
var ErrCorrupt = errors.New("ledger: stored record is corrupt")

// Index lists records that are not over, for the reconciler and for operators. It may be
// behind the store by some seconds, so that a record is fetched before it is acted on.
type Index interface {
	// List lists the records that are ListedIn a list, none that is ListedAt a time after
	// before, unless that is zero. They are in the order of their Places, from the one
	// behind after on, limit at most; fewer are the end. A record that is written while a
	// list is read moves towards its end, so that it can be met again there.
	List(ctx context.Context, list string, before time.Time, after Place, limit int) ([]Place, error)
}

// The lists of an Index.
const (
	// ListOpen has the records that an attempt has, or had, in hand. A payment that is
	// answered in one go never leaves it, so that a store writes its index twice for it,
	// and not four times.
	ListOpen = "open"
	// ListOwed has the other records that are paid and not answered.
	ListOwed = "owed"
)

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

// Rows reads a store page by page, for operators. It may have to read the whole store.
type Rows interface {
	// Page reads at most limit rows whose keys begin with prefix (see PayerPrefix): those
	// behind the key after, in an order of the store, or the first ones where after is
	// empty. With a prefix it sees every write that succeeded before the call, and without
	// one it may be behind by some seconds. A row that is written while pages are read is
	// in one of them, as it was before or after that.
	Page(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is a part of a store.
type Page struct {
	Records []Record // without the bodies of answers
	Corrupt []string // keys of rows that cannot be read
	// Next is what the next page comes after; empty when nothing is left.
	Next string
}
