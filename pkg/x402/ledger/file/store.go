// Package file keeps the payment ledger in one SQLite file. Any number of processes may have
// it open, so an operator's tools can read and write it while the service runs. Each write is
// on disk (fsync of the write-ahead log) before it is acknowledged, so a crash loses no
// acknowledged write.
//
// # Answers
//
// A file keeps the body of an answer if the compressed body has at most 1 MB. A larger answer
// is given once, and each repeat of the request runs the handler again, five times in all.
//
// # The file and the -wal beside it
//
// While a ledger is open, its newest writes are in a file beside it whose name ends in -wal.
// The last process that closes the ledger moves everything into the main file. If a process is
// killed, the -wal stays, and the next Open uses it. So move or copy a ledger only while no
// process has it open, or use a copy that Backup has written. Open refuses a file without its
// -wal (ErrIncomplete), unless it gets the option Accept with the word that the error names.
//
// Expired records stay in a file until Sweep deletes them. Package reconcile calls Sweep, and
// each call looks at some of the records.
//
// The engine is modernc.org/sqlite, a maintained translation of SQLite itself to Go, so this
// package needs no cgo.
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

// ErrUnreadable means that a file is not a ledger that this version can read. Open does not
// change the file.
var ErrUnreadable = errors.New("the ledger file is damaged, or another version of this program wrote it")

// unreadableAdvice is the text that Open adds to ErrUnreadable, for the person who starts the
// program.
const unreadableAdvice = `
If another version wrote it, use that version. Otherwise move it away and start again with a
new, empty one, or name another one in LEDGER_FILE. The new one knows nothing of earlier
payments: their signatures are refused and never charged again, but stored answers are not
repeated, and answers that are owed are forgotten. Keep the damaged file, and refund its
payers by the list of transfers to PAY_TO.`

// These values in the header of a file show that the file belongs to this package.
// applicationID is "x402" in ASCII. schemaVersion is the version of the schema.
const (
	applicationID = 0x78343032
	schemaVersion = 1
)

// schema creates the table. The column "list" says in which list of ledger.Index a record is.
// The column "since" has the record's time in that list. The column "sum" has a checksum of the
// columns "doc" and "body", because SQLite stores no checksum of its data.
const schema = `
CREATE TABLE IF NOT EXISTS records (
	key TEXT PRIMARY KEY, version INTEGER NOT NULL, write_id TEXT NOT NULL,
	list INTEGER NOT NULL, since INTEGER NOT NULL, expires INTEGER NOT NULL,
	doc TEXT NOT NULL, body BLOB, sum INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS lists ON records (list, since, key) WHERE list > 0;`

// Store is a ledger in a file. It implements the interfaces of package ledger. It is safe for
// concurrent use.
type Store struct {
	location  location
	db        *sql.DB
	fetchStmt *sql.Stmt

	writer                                        *sql.Conn     // the one connection that writes
	beginStmt, insertStmt, updateStmt, commitStmt *sql.Stmt     // prepared on writer
	turn                                          chan struct{} // full while a goroutine has the turn, that is, may write
	pendingChanges                                chan *change  // the writes to commit; only the goroutine that has the turn receives them
}

// Option is a setting of Open.
type Option func(*settings)

type settings struct{ acceptWord string }

// Accept makes Open accept a file that it has refused with ErrIncomplete. word is the
// acceptance word that the error has named. The word is valid until Open has accepted the file
// with it. The files of other ledgers have other words.
func Accept(word string) Option { return func(s *settings) { s.acceptWord = word } }

// Open opens the ledger at path. If there is no file at path, Open creates the file and its
// folder, readable by this user only. ErrUnreadable means that the file is not a ledger that
// this version can read, or that its pages are damaged. ErrIncomplete means that its -wal file
// is missing. ErrBeside means that the -wal file beside it belongs to another ledger.
func Open(path string, options ...Option) (*Store, error) {
	var set settings
	for _, option := range options {
		option(&set)
	}
	ctx := context.Background()
	at := location{path}
	if err := createFile(path); err != nil {
		return nil, wrap("open", err)
	}
	if err := at.checkWAL(ctx, set.acceptWord); err != nil {
		return nil, wrap("open", err)
	}
	db, err := at.connect(busyTimeout)
	if err != nil {
		return nil, wrap("open", err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	s := &Store{
		location:       at,
		db:             db,
		turn:           make(chan struct{}, 1),
		pendingChanges: make(chan *change, maxCommit),
	}
	if err := s.open(ctx, set.acceptWord); err != nil {
		if err = wrap("open "+path, err); errors.Is(err, ledger.ErrCorrupt) || resultCode(err) == sqlite3.SQLITE_ERROR {
			err = fmt.Errorf("%w (%w)%s", ErrUnreadable, err, unreadableAdvice)
		}
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// busyTimeout is how long a connection waits for another process that writes.
const busyTimeout = 5 * time.Second

// maxConns is the number of connections. One of them writes, and the others read. They are
// kept open because each caches its statements and its pages.
const maxConns = 5

// open checks the file and prepares the connection and the statements for writing.
func (s *Store) open(ctx context.Context, acceptWord string) (err error) {
	if err = checkFile(ctx, s.db, maxCheckedPages); err != nil {
		return err
	}
	if s.writer, err = s.db.Conn(ctx); err != nil {
		return err
	}
	if err = createTables(ctx, s.writer); err != nil {
		return err
	}
	if err = s.location.markIncomplete(ctx, s.db, acceptWord); err != nil {
		return err
	}
	for into, query := range map[**sql.Stmt]string{
		&s.beginStmt: "BEGIN IMMEDIATE", &s.commitStmt: "COMMIT",
		&s.insertStmt: `INSERT INTO records (version, write_id, list, since, expires, doc, body, sum, key)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		&s.updateStmt: `UPDATE records
			SET version = ?1, write_id = ?2, list = ?3, since = ?4, expires = ?5, doc = ?6, body = ?7, sum = ?8
			WHERE key = ?9 AND version = ?1 - 1`,
	} {
		if *into, err = s.writer.PrepareContext(ctx, query); err != nil {
			return err
		}
	}
	s.fetchStmt, err = s.db.PrepareContext(ctx, fetchQuery)
	return err
}

// Close waits for the transaction under way and closes the file. If no other process has the
// file open, Close leaves a single file without a -wal. Calls after Close fail. Close must be
// called only once.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	err := errors.Join(s.beginStmt.Close(), s.insertStmt.Close(), s.updateStmt.Close(), s.commitStmt.Close(), s.fetchStmt.Close(), s.writer.Close(), s.db.Close())
	return errors.Join(err, wrap("close", s.location.mergeWAL(context.Background())))
}

// maxCommit is how many writes can share one transaction. It bounds the memory of a
// transaction, because a write takes up to 1.4 MB.
const maxCommit = 64

// change is one write that waits for a transaction.
type change struct {
	record ledger.Record
	values []any
	result chan result // has room for the result, so commit does not wait for the receiver
}

// result holds the record that is stored after a change, or nil if there is none. The error
// means that it is not known which record is stored.
type result struct {
	stored ledger.Record
	err    error
}

// Put implements ledger.Store. Writes that wait for the same transaction to end share the next
// transaction and its sync to disk: the first writer that gets the turn commits for all.
func (s *Store) Put(ctx context.Context, r ledger.Record) (current ledger.Record, err error) {
	values, err := encode(r)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, wrap("put", err)
	}
	c := &change{r, values, make(chan result, 1)}
	s.pendingChanges <- c // this send ends even if the channel is full, because the writer of a change in the channel has the turn or will take it
	for {
		select {
		case o := <-c.result:
			return o.stored, wrap("put", o.err)
		case s.turn <- struct{}{}:
			s.commitWaiting()
		}
	}
}

// commitWaiting commits all waiting changes. The caller has taken the turn, and commitWaiting
// gives it back. Before commitWaiting commits, it lets other goroutines run, because a commit
// takes as long as several requests and each goroutine may add a change to the same commit.
func (s *Store) commitWaiting() {
	defer func() { <-s.turn }()
	var changes []*change
	for more := true; more; {
		runtime.Gosched()
		n := min(len(s.pendingChanges), maxCommit-len(changes))
		for range n {
			changes = append(changes, <-s.pendingChanges)
		}
		more = n > 0
	}
	if len(changes) > 0 {
		s.commit(changes)
	}
}

// commit makes changes in one transaction, in their order. If the transaction fails, all
// changes fail. Even a change that wrote nothing fails: it may have found a record that this
// transaction wrote and that is not stored after all.
func (s *Store) commit(changes []*change) {
	ctx := context.Background() // SQLite needs no deadline: it waits only for locks, for 5 s
	results := make([]result, len(changes))
	err := errors.New("the transaction was not finished")
	defer func() { // even after a panic, so that no writer waits for ever
		if err != nil {
			_, _ = s.writer.ExecContext(ctx, "ROLLBACK") // the first error matters
		}
		for i, c := range changes {
			if err != nil {
				results[i] = result{err: err}
			}
			c.result <- results[i]
		}
	}()
	if _, begun := s.beginStmt.ExecContext(ctx); begun != nil {
		err = begun
		return
	}
	for i, c := range changes {
		results[i].stored, results[i].err = s.apply(ctx, c)
	}
	_, err = s.commitStmt.ExecContext(ctx)
}

// apply makes one change in the open transaction, and returns the record that is stored
// afterwards.
func (s *Store) apply(ctx context.Context, c *change) (ledger.Record, error) {
	statement := s.updateStmt
	if c.record.Head().Version == 1 {
		statement = s.insertStmt
	}
	done, err := statement.ExecContext(ctx, c.values...)
	if err != nil {
		return nil, err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return c.record, err
	}
	return recordOf(s.writer.QueryRowContext(ctx, fetchQuery, c.record.Head().Key))
}

// Fetch implements ledger.Store.
func (s *Store) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	r, err := recordOf(s.fetchStmt.QueryRowContext(ctx, key))
	return r, wrap("fetch", err)
}

// recordOf returns the record in a row of fetchQuery, or nil if there is none.
func recordOf(row *sql.Row) (ledger.Record, error) {
	_, r, err := scanRecord(row)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// wrap adds the failed operation to an error, and turns SQLite's errors about damage into
// ledger.ErrCorrupt.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	if c := resultCode(err); c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB {
		err = fmt.Errorf("%w: %w", ledger.ErrCorrupt, err)
	}
	return fmt.Errorf("ledger file: %s: %w", verb, err)
}

// resultCode returns the primary result code of an error of SQLite, and 0 for any other error.
func resultCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
