package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Store keeps records, and writes a record only over the version before it. It has no rules
// about payments: those are all in Ledger.
//
// A call that returns an error may or may not have taken effect. Every call ends within some
// seconds even if ctx has no deadline, because the outcomes of payments are written under such
// a context. Every Store passes ledgertest.Exercise.
type Store interface {
	// Put writes a record over the version before it or, if its version is 1, under a free
	// key. It returns the record that is stored afterwards. If that record has the WriteID of
	// r, the write has succeeded, even if a client library had to send it twice. Otherwise
	// nothing was written, because another version is stored, or no record at all (nil).
	Put(ctx context.Context, r Record) (current Record, err error)

	// Fetch reads a record consistently: it sees every write that has succeeded. It returns
	// nil and no error if there is no record.
	Fetch(ctx context.Context, key string) (Record, error)

	// MostKept returns the size of the largest body of an answer that is kept, in bytes after
	// compression. A Store accepts a body that it has kept before even if MostKept was lowered
	// since.
	MostKept() int
}

// ErrConflict means that another writer came first.
var ErrConflict = errors.New("ledger: the stored version has changed")

// ErrCorrupt means that the stored data cannot be read as a record. Nothing is settled or
// served from it.
var ErrCorrupt = errors.New("ledger: stored record is corrupt")

// Index lists undecided payments, owed payments and unproven refusals, for the reconciler and
// for operators. An Index may be behind the store by some seconds, so callers fetch a record
// before they act on it.
type Index interface {
	// List returns, in order, places of a list (see Record.Listed) that follow a given place. It
	// returns at most limit places. If it returns fewer, the list ends there. Unless before is
	// zero, it leaves out places whose time is later than before. A record that is written while a
	// list is read moves towards the end of the list, and so may be returned twice.
	List(ctx context.Context, list string, before time.Time, after Place, limit int) ([]Place, error)
}

// The lists of an Index.
const (
	// ListOpen has the records that an attempt holds, or held when it died. A payment that is
	// answered by its first attempt is in no other list, so a store updates its index only
	// twice for such a payment, and not four times.
	ListOpen = "open"
	// ListOwed has all other records that are paid and not answered.
	ListOwed = "owed"
	// ListUnproven has the payments for which RefusalUnproven is true, including superseded
	// ones.
	ListUnproven = "unproven"
)

// Lists returns every list.
func Lists() []string { return []string{ListOpen, ListOwed, ListUnproven} }

// Place is the position of a record in a list of an Index. The records that have not changed
// for the longest time come first. The zero Place is before all records.
type Place struct {
	At  time.Time // the time from Record.Listed; an index may round it up to milliseconds
	Key string
}

// Compare orders places, as cmp.Compare does.
func (p Place) Compare(q Place) int {
	return cmp.Or(p.At.Compare(q.At), cmp.Compare(p.Key, q.Key))
}

// FirstPlaces sorts places, and returns the first ones that follow a given place, the argument
// after. It returns at most limit places. It modifies the slice all.
func FirstPlaces(all []Place, after Place, limit int) []Place {
	all = slices.DeleteFunc(all, func(p Place) bool { return p.Compare(after) <= 0 })
	slices.SortFunc(all, Place.Compare)
	return all[:max(min(limit, len(all)), 0)]
}

// Sweeper is a store that keeps expired records until Sweep is called. A DynamoDB table
// deletes them without a call.
type Sweeper interface {
	// Sweep deletes expired records and returns how many it has deleted. One call does a
	// limited amount of work, and may leave some records to the next calls. Payments that are
	// in doubt or owed do not expire.
	Sweep(ctx context.Context, now time.Time) (int, error)
}

// Rows reads a store page by page, for operators. It may have to read the whole store.
type Rows interface {
	// Page reads at most limit rows whose keys begin with prefix (see PayerPrefix). If the
	// argument after is empty, it reads the first rows. Otherwise it reads the rows that
	// follow the row with the key after, in the order of the store. With a prefix it sees
	// every write that succeeded before the call; without one it may be behind by some
	// seconds. A row that is written while pages are read is in one of the pages, in its old
	// or its new version.
	Page(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page holds some of the rows of a store.
type Page struct {
	Records []Record // the records, without the bodies of their answers
	Corrupt []string // keys of rows that cannot be read
	// Next is passed to the next call, which then returns the next page. It is empty if there is
	// no further page.
	Next string
}
