// Package file keeps the payment ledger in one SQLite file. Any number of processes may have it
// open, so that an operator's tools read and write it beside the service. Each write is on disk
// (fsync of the write-ahead log) before it is acknowledged, so that a crash loses no
// acknowledged write.
//
// # Answers
//
// A file keeps the body of an answer up to 1 MB, compressed. A larger one is given once, and
// each repeat runs the handler again, five times in all.
//
// # The file and the -wal beside it
//
// While a ledger is open, its newest writes are in a file beside it whose name ends in -wal. The
// last process that closes the ledger moves everything into the main file. If a process is
// killed, the -wal stays, and the next Open uses it. So move or copy a ledger only while nobody
// has it open, or use a copy that Backup has written. Open refuses a file that lacks its -wal
// (ErrHalved), unless Accept is given the word that the error names.
//
// Expired records stay in a file until Sweep deletes them. Package reconcile calls it, for a
// part of the file at a time.
//
// The engine is modernc.org/sqlite: maintained, and SQLite itself without cgo.
package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ErrUnreadable says that a file is not a ledger that this version can read. Open
// leaves it as it is.
var ErrUnreadable = errors.New("the ledger file is damaged, or another version of this program wrote it")

// advice is what Open adds to ErrUnreadable, for the person who starts the program.
const advice = `
If another version wrote it, use that version. Otherwise move it away and start again with a
new, empty one, or name another one in LEDGER_FILE. The new one knows nothing of earlier
payments: their signatures are refused and never charged again, but stored answers are not
repeated, and answers that are owed are forgotten. Keep the damaged file, and refund its
payers by the list of transfers to PAY_TO.`

// What a file of this package says of itself: application is "x402" in ASCII, and
// version counts the forms of the table.
const (
	application = 0x78343032
	version     = 1
)

// schema is the table. list and since are the place of a record in ledger.Index. sum
// covers doc and body, because SQLite has no checksum over what it stores.
const schema = `
CREATE TABLE IF NOT EXISTS records (
	key TEXT PRIMARY KEY, version INTEGER NOT NULL, write_id TEXT NOT NULL,
	list INTEGER NOT NULL, since INTEGER NOT NULL, expires INTEGER NOT NULL,
	doc TEXT NOT NULL, body BLOB, sum INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS lists ON records (list, since, key) WHERE list > 0;`

// Store is a ledger on a file, and implements the interfaces of package ledger. It is safe
// for concurrent use.
type Store struct {
	at      location
	db      *sql.DB
	fetches *sql.Stmt

	writer                     *sql.Conn     // the connection that writes, in turn
	begin, insert, update, end *sql.Stmt     // of the writer
	turn                       chan struct{} // holds one of those that write
	waiting                    chan *change  // received from by the one that has the turn
}

// Option is a setting of Open.
type Option func(*settings)

type settings struct{ accepted string }

// Accept accepts a file that Open has refused with ErrHalved, by the word that its error has
// named. The word is good for that file as it is: the next one that is refused has another.
func Accept(word string) Option { return func(s *settings) { s.accepted = word } }

// Open opens the ledger at path, and creates it with its folder, readable by this
// user only, when it is missing. ErrUnreadable says that something else is there, or
// that its pages are damaged, ErrHalved that a part of it is missing, and ErrBeside that a
// part of another ledger lies beside it.
func Open(path string, options ...Option) (*Store, error) {
	var set settings
	for _, option := range options {
		option(&set)
	}
	ctx := context.Background()
	at := location{path}
	if err := create(path); err != nil {
		return nil, wrap("open", err)
	}
	if err := at.check(ctx, set.accepted); err != nil {
		return nil, wrap("open", err)
	}
	db, err := at.connect(patience)
	if err != nil {
		return nil, wrap("open", err)
	}
	db.SetMaxOpenConns(maxOpen)
	db.SetMaxIdleConns(maxOpen)
	s := &Store{
		at:      at,
		db:      db,
		turn:    make(chan struct{}, 1),
		waiting: make(chan *change, maxCommit),
	}
	if err := s.open(ctx, set.accepted); err != nil {
		if err = wrap("open "+path, err); errors.Is(err, ledger.ErrCorrupt) || code(err) == sqlite3.SQLITE_ERROR {
			err = fmt.Errorf("%w (%w)%s", ErrUnreadable, err, advice)
		}
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// patience is for how long another process that writes is waited for.
const patience = 5 * time.Second

// maxOpen is how many connections there are, one that writes and the others that read. A
// connection that is kept knows its statements and its pages.
const maxOpen = 5

// open checks the file and prepares what writes use.
func (s *Store) open(ctx context.Context, accepted string) (err error) {
	if err = prepare(ctx, s.db, mostChecked); err != nil {
		return err
	}
	if s.writer, err = s.db.Conn(ctx); err != nil {
		return err
	}
	if err = complete(ctx, s.writer); err != nil {
		return err
	}
	if err = s.at.begin(ctx, s.db, accepted); err != nil {
		return err
	}
	for into, query := range map[**sql.Stmt]string{
		&s.begin: "BEGIN IMMEDIATE", &s.end: "COMMIT",
		&s.insert: `INSERT INTO records (version, write_id, list, since, expires, doc, body, sum, key)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		&s.update: `UPDATE records
			SET version = ?1, write_id = ?2, list = ?3, since = ?4, expires = ?5, doc = ?6, body = ?7, sum = ?8
			WHERE key = ?9 AND version = ?1 - 1`,
	} {
		if *into, err = s.writer.PrepareContext(ctx, query); err != nil {
			return err
		}
	}
	s.fetches, err = s.db.PrepareContext(ctx, fetch)
	return err
}

// Close waits for the transaction that is under way and closes the file. The last process
// that does so leaves it in a single piece. Calls after it fail. It is called once.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	err := errors.Join(s.begin.Close(), s.insert.Close(), s.update.Close(), s.end.Close(), s.fetches.Close(), s.writer.Close(), s.db.Close())
	return errors.Join(err, wrap("close", s.at.unite(context.Background())))
}

// maxCommit bounds how many writes share one transaction, and so the memory that one
// takes: 1.4 MB each.
const maxCommit = 64

// change is one write that waits for a transaction.
type change struct {
	record ledger.Record
	values []any
	done   chan result // buffered
}

// result is the record that is there after a change, nil where there is none, or why that
// is not known.
type result struct {
	held ledger.Record
	err  error
}

// Put implements ledger.Store. Writes that wait for the same transaction to end share the
// next one, and with it its sync to disk: the first of them that has its turn commits for
// all.
func (s *Store) Put(ctx context.Context, r ledger.Record) (stands ledger.Record, err error) {
	values, err := encode(r)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, wrap("put", err)
	}
	c := &change{r, values, make(chan result, 1)}
	s.waiting <- c // where it is full, one of those that wait in it has the turn or takes it
	for {
		select {
		case o := <-c.done:
			return o.held, wrap("put", o.err)
		case s.turn <- struct{}{}:
			s.lead()
		}
	}
}

// lead commits what waits, in the turn that the caller has taken. Goroutines that are ready
// to run go first, because each may bring a change: a commit costs as much as several
// requests.
func (s *Store) lead() {
	defer func() { <-s.turn }()
	var changes []*change
	for more := true; more; {
		runtime.Gosched()
		n := min(len(s.waiting), maxCommit-len(changes))
		for range n {
			changes = append(changes, <-s.waiting)
		}
		more = n > 0
	}
	if len(changes) > 0 {
		s.commit(changes)
	}
}

// commit makes changes in one transaction, in their order. When it fails, all of them
// have failed, those too that had nothing to write: what they read was never stored.
func (s *Store) commit(changes []*change) {
	ctx := context.Background() // SQLite ends by itself: it waits for locks only, for 5 s
	results := make([]result, len(changes))
	err := errors.New("the transaction was not finished")
	defer func() { // also after a panic, so that nobody waits for ever
		if err != nil {
			_, _ = s.writer.ExecContext(ctx, "ROLLBACK") // the first error matters
		}
		for i, c := range changes {
			if err != nil {
				results[i] = result{err: err}
			}
			c.done <- results[i]
		}
	}()
	if _, begun := s.begin.ExecContext(ctx); begun != nil {
		err = begun
		return
	}
	for i, c := range changes {
		results[i].held, results[i].err = s.apply(ctx, c)
	}
	_, err = s.end.ExecContext(ctx)
}

// apply makes one change in the open transaction.
func (s *Store) apply(ctx context.Context, c *change) (ledger.Record, error) {
	statement := s.update
	if c.record.Head().Version == 1 {
		statement = s.insert
	}
	done, err := statement.ExecContext(ctx, c.values...)
	if err != nil {
		return nil, err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return c.record, err
	}
	return fetched(s.writer.QueryRowContext(ctx, fetch, c.record.Head().Key))
}

// Fetch implements ledger.Store.
func (s *Store) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	r, err := fetched(s.fetches.QueryRowContext(ctx, key))
	return r, wrap("fetch", err)
}

// fetched is the record that fetch has found; nil where there is none.
func fetched(row *sql.Row) (ledger.Record, error) {
	_, r, err := scan(row)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// wrap says what failed, and names an error of SQLite that means damage ledger.ErrCorrupt.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	if c := code(err); c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB {
		err = fmt.Errorf("%w: %w", ledger.ErrCorrupt, err)
	}
	return fmt.Errorf("ledger file: %s: %w", verb, err)
}

// code is the primary result code of an error of SQLite, and 0 for any other error.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
