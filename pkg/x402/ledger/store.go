package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Store keeps records, and writes one only over the version that it follows. DynamoDB and
// a file differ in nothing else; every rule is above it, in Ledger.
//
// A call that returns an error may or may not have taken effect. Every call ends by
// itself within some seconds, even if ctx has no deadline: verdicts about money are written
// under such a context. Every Store passes ledgertest.Exercise.
type Store interface {
	// Put writes a record over the version before its own or, if its version is 1, under
	// a free key. It returns the record that is stored then. If that has the WriteID of r,
	// this very write has succeeded, now or when a client library sent it for the first
	// time. Otherwise nothing was written: another record is in the way, or none exists
	// any more (nil).
	Put(ctx context.Context, r Record) (stands Record, err error)

	// Fetch reads a record, consistently: it sees every write that has
	// succeeded. It returns nil without an error when there is none.
	Fetch(ctx context.Context, key string) (Record, error)

	// MostKept is how long the body of an answer may be to be kept, in bytes as it is
	// stored, which is compressed. What a Store has kept it takes again, whatever MostKept
	// has become since.
	MostKept() int
}

// ErrConflict says that another writer came first.
var ErrConflict = errors.New("ledger: the stored version has changed")

// ErrCorrupt says that what is stored cannot be read as a record. It fails
// closed: nothing is settled and nothing is served on it.
var ErrCorrupt = errors.New("ledger: stored record is corrupt")

// Index lists undecided, owed and unproven records, for the reconciler and for operators. It may be
// behind the store by some seconds, so that a record is fetched before it is acted on.
type Index interface {
	// List returns the places of a list (Record.Listed) that come after a place, in order,
	// at most limit; fewer than that are its end. Unless before is zero, it leaves out records
	// that are listed later. A record that is written while a list is read moves towards the
	// end of the list, so that it can be met again there.
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
	// ListUnproven has the payments that are Unproven, also those whose purchase another
	// payment has taken over.
	ListUnproven = "unproven"
)

// Lists returns every list.
func Lists() []string { return []string{ListOpen, ListOwed, ListUnproven} }

// Place is where a record stands in a list of an Index: those untouched for longest
// come first. The zero Place is before all of them.
type Place struct {
	At  time.Time // that of Record.Listed; an index may round it up to milliseconds
	Key string
}

// Compare orders places, as cmp.Compare does.
func (p Place) Compare(q Place) int {
	return cmp.Or(p.At.Compare(q.At), cmp.Compare(p.Key, q.Key))
}

// FirstPlaces returns the first places that come after one, in order, at most limit. It
// changes all.
func FirstPlaces(all []Place, after Place, limit int) []Place {
	all = slices.DeleteFunc(all, func(p Place) bool { return p.Compare(after) <= 0 })
	slices.SortFunc(all, Place.Compare)
	return all[:max(min(limit, len(all)), 0)]
}

// Sweeper is a store that keeps what has expired until it is told to delete it. A DynamoDB
// table deletes it without being told.
type Sweeper interface {
	// Sweep deletes records that have expired, in bounded work: a call may leave some to the
	// next ones. What is in doubt or owed does not expire. It returns how many it has deleted.
	Sweep(ctx context.Context, now time.Time) (int, error)
}

// Rows reads a store page by page, for operators. It may have to read the whole store.
type Rows interface {
	// Page reads at most limit rows whose keys begin with prefix (see PayerPrefix), in an
	// order of the store: those that follow the key after, or the first ones if after is
	// empty. With a prefix it sees every write that succeeded before the call, and without
	// one it may be behind by some seconds. A row that is written while pages are read is
	// in one of them, as it was before or after that.
	Page(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is a part of a store.
type Page struct {
	Records []Record // without the bodies of answers
	Corrupt []string // keys of rows that cannot be read
	// Next is the key to read the next page after; empty when nothing is left.
	Next string
}
