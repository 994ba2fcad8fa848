package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Store keeps records. The versions of a record are numbered, and a write succeeds only if its
// version is the next one. A Store has no rules about payments: all of these rules are in
// Ledger.
//
// A call that returns an error may or may not have taken effect. Every call ends within some
// seconds even if ctx has no deadline, because the outcome of a payment is written with a
// context that has none. Every Store passes ledgertest.Exercise.
type Store interface {
	// Put writes r only if the version of r is the stored version plus 1. If no record is
	// stored under the key of r, the version of r must be 1. Put returns the record that is
	// stored afterwards. If that record has the WriteID of r, the write has succeeded, even if
	// a client library had to send it twice. Otherwise nothing was written: another version is
	// stored, or there is no record (nil).
	Put(ctx context.Context, r Record) (current Record, err error)

	// Fetch reads a record, and sees every write that has succeeded. It returns nil and no
	// error if there is no record.
	Fetch(ctx context.Context, key string) (Record, error)

	// MostKept returns the size of the largest body of an answer that the Store keeps, in
	// bytes after compression. If MostKept has been lowered, the Store still accepts a larger
	// body that it has kept before.
	MostKept() int
}

// ErrConflict means that somebody else has written the record first.
var ErrConflict = errors.New("ledger: the stored version has changed")

// ErrCorrupt means that the stored data cannot be read as a record. Such data is never used to
// settle a payment or to answer a request.
var ErrCorrupt = errors.New("ledger: stored record is corrupt")

// Index lists undecided payments, owed payments and unproven refusals, for the reconciler and
// for operators. An Index may lag some seconds behind its store, so callers fetch a record
// before they act on it.
type Index interface {
	// List returns places of a list (see Record.Listed), in the order of Place.Compare. It
	// begins with the first place that follows the given one. If latest is not zero, List
	// leaves out the places whose time is later than latest. It returns at most limit places;
	// if it returns fewer, there are no more. A record that is written while a list is read
	// moves towards the end of the list, and so may be returned twice.
	List(ctx context.Context, list string, latest time.Time, after Place, limit int) ([]Place, error)
}

// These are the names of the lists of an Index.
const (
	// ListOpen has the payments that are in doubt, and the paid payments whose lookup was
	// running at the last write. If the first attempt on a payment answers it, the payment is
	// never in another list. So a store updates its index only twice for the payment: when it
	// enters this list, and when it leaves this list.
	ListOpen = "open"
	// ListOwed has all other payments that are paid but not answered.
	ListOwed = "owed"
	// ListUnproven has the payments for which RefusalUnproven is true, including superseded
	// ones.
	ListUnproven = "unproven"
)

// Lists returns every list.
func Lists() []string { return []string{ListOpen, ListOwed, ListUnproven} }

// Place is the position of a record in a list of an Index. A list is sorted by time, and by
// key if the times are equal. The zero Place is before all records.
type Place struct {
	At  time.Time // the time from Record.Listed; an index may round it up to milliseconds
	Key string
}

// Compare compares two places by time, and then by key. Its result is -1, 0 or 1.
func (p Place) Compare(q Place) int {
	return cmp.Or(p.At.Compare(q.At), cmp.Compare(p.Key, q.Key))
}

// FirstPlaces sorts places, leaves out all up to and including the given place, and returns at
// most limit of the rest. It modifies the given slice.
func FirstPlaces(all []Place, after Place, limit int) []Place {
	all = slices.DeleteFunc(all, func(p Place) bool { return p.Compare(after) <= 0 })
	slices.SortFunc(all, Place.Compare)
	return all[:max(min(limit, len(all)), 0)]
}

// Sweeper is a store that keeps expired records until Sweep deletes them. A DynamoDB table
// needs no Sweep.
type Sweeper interface {
	// Sweep deletes expired records and returns how many it has deleted. One call does a
	// limited amount of work, and may leave some records to the next calls. Payments that are
	// in doubt or owed do not expire.
	Sweep(ctx context.Context, now time.Time) (int, error)
}

// Rows reads a store page by page, for operators. It may have to read the whole store.
type Rows interface {
	// Page reads at most limit rows whose keys begin with prefix (see PayerPrefix). It reads
	// them in the order of the store. It begins with the row that follows afterKey or, if
	// afterKey is empty, with the first row. With a prefix, Page sees every write that
	// succeeded before the call; without one, it may lag some seconds behind. A row that is
	// written while pages are read is in one of the pages, in its old or its new version.
	Page(ctx context.Context, prefix, afterKey string, limit int) (Page, error)
}

// Page holds some of the rows of a store.
type Page struct {
	Records []Record // the records, without the bodies of their answers
	Corrupt []string // keys of rows that cannot be read
	// Next is the afterKey with which Page returns the next page. It is empty if there is no
	// further page.
	Next string
}
