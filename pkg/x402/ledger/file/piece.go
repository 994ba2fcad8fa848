package file

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrIncomplete means that a file is probably incomplete: the marker in the file says that the
// -wal file beside it is needed, and the -wal is missing. Open does not change the file.
var ErrIncomplete = errors.New("the ledger file is only a part of a ledger, because the -wal file that belongs beside it is missing")

// incompleteAdvice is the text that Open adds to ErrIncomplete. It tells the operator which
// word accepts the file.
const incompleteAdvice = `
Either this is a copy of the file alone, made while a program had it open. Then the newest
payments are not in it: use the ledger itself, or a copy that make backup or Store.Backup
wrote. Or the program was killed, and another one, such as the sqlite3 shell or an earlier
release, has opened and closed the file since. Then nothing is missing. To accept the file as
it is, set LEDGER_ACCEPT=%[1]s, or pass file.Accept("%[1]s") to file.Open.`

// ErrBeside means that a file is a whole ledger, and that the -wal file beside it belongs to
// another ledger. Open changes neither of the two.
var ErrBeside = errors.New("the ledger file is whole, and the -wal file beside it belongs to another one: move that away, with its -shm file")

// createMarkerQuery creates the marker of a file. While a ledger is open, the ledger
// consists of two files: the main file, and beside it the -wal file with the newest writes.
// The marker in the main file says whether the main file is complete without a -wal:
//
//	whole is 1   everything is in the main file; a -wal beside it has nothing more
//	whole is 0   the main file needs the -wal beside it
//
// Once the -wal exists, Open sets whole to 0. Nothing else is written before this 0 is in the
// main file. The last Close locks the main file, moves the content of the -wal into the main
// file, then sets whole to 1, and then removes the -wal. So a process that is killed at any
// moment leaves either a file that is whole and marked as whole, or the main file and its
// -wal. SQLite would remove the -wal when the last connection is closed. Each connection of
// this package prevents that.
//
// A file of an earlier release has no marker. Open accepts such a file and gives it a marker.
// The column "word" has the acceptance word, with which Accept accepts the file if its -wal is
// missing. The column "swept" has the number of the row at which the last Sweep stopped, or 0
// if Sweep reached the last row.
const createMarkerQuery = `CREATE TABLE marker (whole INTEGER NOT NULL, word TEXT NOT NULL, swept INTEGER NOT NULL); INSERT INTO marker VALUES (1, '', 0);`

// countMarkersQuery returns 1 if a file has a marker, and 0 otherwise.
const countMarkersQuery = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'marker'"

// location is the path of a ledger.
type location struct{ path string }

// dsn returns the data source name of the file. Its settings stop SQLite from creating the
// file.
func (l location) dsn(settings url.Values) string {
	scheme := "file:./" // "file:" alone has another meaning before "//a" and ":memory:"
	if filepath.IsAbs(l.path) {
		scheme = "file://"
	}
	settings.Set("mode", "rw")
	return scheme + (&url.URL{Path: l.path}).EscapedPath() + "?" + settings.Encode()
}

// connect returns a database whose connections do not remove the -wal. If another process
// is writing, a connection waits until that process has finished, for at most the given time.
func (l location) connect(patience time.Duration) (*sql.DB, error) {
	c, err := sqlite.NewConnector(l.dsn(url.Values{}))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(walKeeper{c, fmt.Sprintf("PRAGMA busy_timeout = %d; PRAGMA synchronous = FULL", patience.Milliseconds())}), nil
}

// walKeeper is a connector whose connections do not remove the -wal. Connect first tells
// SQLite to keep the -wal, and then executes the settings. This order matters if the settings
// fail: SQLite may have opened the -wal by then, and must not remove it.
type walKeeper struct {
	driver.Connector
	settings string
}

func (k walKeeper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	err = keepWAL(c, true)
	if execer, ok := c.(driver.ExecerContext); err == nil && ok {
		_, err = execer.ExecContext(ctx, k.settings, nil)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// keepWAL sets whether SQLite keeps the -wal when the last connection is closed.
func keepWAL(conn any, keep bool) error {
	control, ok := conn.(sqlite.FileControl)
	if !ok {
		return fmt.Errorf("a connection of type %T cannot be told to keep the -wal", conn)
	}
	mode := 0
	if keep {
		mode = 1
	}
	_, err := control.FileControlPersistWAL("main", mode)
	return err
}

// mark is the content of a file's marker.
type mark struct {
	isWhole    bool
	acceptWord string // the word with which Accept accepts the file if its -wal is missing
	usesWAL    bool   // whether the file's journal mode says that the file is used with a -wal
}

// readMark reads the marker in the main file and ignores the -wal. It changes nothing, and
// returns nil if there is no marker. It reads through SQLite: if it opened and closed the file
// itself, this process would lose its locks on the file.
func (l location) readMark(ctx context.Context) (*mark, error) {
	db, err := sql.Open("sqlite", l.dsn(url.Values{"immutable": {"1"}}))
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	count := 0
	if err := db.QueryRowContext(ctx, countMarkersQuery).Scan(&count); err != nil || count == 0 {
		return nil, err
	}
	const version = "SELECT hex(substr(data, 19, 1)) = '02' FROM sqlite_dbpage WHERE pgno = 1" // true if the header says that the file is used with a -wal
	var m mark
	if err := db.QueryRowContext(ctx, "SELECT whole, word, ("+version+") FROM marker").Scan(&m.isWhole, &m.acceptWord, &m.usesWAL); err != nil {
		return nil, err
	}
	return &m, nil
}

// hasWAL reports whether a -wal is beside the file and is not empty.
func (l location) hasWAL() (bool, error) {
	path, err := filepath.EvalSymlinks(l.path) // SQLite puts the -wal beside the target of a link
	if err != nil {
		return false, err
	}
	info, err := os.Stat(path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// checkWAL returns ErrBeside if the -wal belongs to another ledger. If the -wal is missing,
// checkWAL returns ErrIncomplete, unless acceptWord is the word for this file. A file changes
// while another process opens or closes it, so checkWAL reads the file twice and reports only
// what is wrong both times. If checkWAL cannot read the marker, it reports nothing, because
// later steps of Open report an unreadable file.
func (l location) checkWAL(ctx context.Context, acceptWord string) error {
	for try := range 2 {
		before, err := l.hasWAL()
		if err != nil {
			return err
		}
		m, _ := l.readMark(ctx)
		after, err := l.hasWAL()
		halved := m != nil && !m.isWhole && m.usesWAL && !before && !after
		beside := m != nil && !m.usesWAL && before && after
		switch {
		case err != nil:
			return err
		case !halved && !beside, halved && acceptWord != "" && m.acceptWord == acceptWord:
			return nil
		case try == 0: // read the file a second time
		case halved:
			return fmt.Errorf("%w: %s%s", ErrIncomplete, l.path, fmt.Sprintf(incompleteAdvice, m.acceptWord))
		default:
			return fmt.Errorf("%w: %s", ErrBeside, l.path)
		}
	}
	return nil
}

// markTimeout is how long markIncomplete waits for programs that read the file.
const markTimeout = 30 * time.Second

// markIncomplete sets the column "whole" to 0 in the main file. It also sets a new acceptance
// word if the column was not 0, or if Open has just accepted the file with the old word. SQLite
// writes the new marker to the -wal, so markIncomplete has to move the content of the -wal
// into the main file. That fails while a program reads an older state of the ledger. It also
// fails while another process moves the content, for example because that process opens the
// file at the same time. So markIncomplete tries again until the 0 is in the main file, for at
// most markTimeout.
func (l location) markIncomplete(ctx context.Context, db *sql.DB, acceptWord string) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := db.ExecContext(ctx, "UPDATE marker SET whole = 0, word = ? WHERE whole <> 0 OR word = ?", rand.Text()[:8], acceptWord); err != nil {
			return err
		}
		m, err := l.readMark(ctx)
		if err == nil && m != nil && !m.isWhole && (acceptWord == "" || m.acceptWord != acceptWord) {
			return nil
		}
		if _, err := db.ExecContext(ctx, "PRAGMA wal_checkpoint(FULL)"); err != nil && resultCode(err) != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return errors.New("another program has been reading the ledger since before it was opened: end that, and start again")
}

// mergeTimeout is the longest time that mergeWAL waits for other processes. The actual time is
// random, so that processes that end together do not all give up together.
const mergeTimeout = 50 * time.Millisecond

// mergeWAL moves the content of the -wal into the main file, and removes the -wal. If another
// process has the file open, mergeWAL does nothing.
func (l location) mergeWAL(ctx context.Context) error {
	db, err := l.connect(mathrand.N(mergeTimeout))
	if err != nil {
		return err
	}
	err = mergeWALOver(ctx, db)
	if resultCode(err) == sqlite3.SQLITE_BUSY {
		err = nil
	}
	return errors.Join(err, db.Close())
}

func mergeWALOver(ctx context.Context, db *sql.DB) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // closing db reports the error
	for _, query := range []string{
		"SELECT whole FROM marker", // opens the -wal
		// From the next transaction on, this connection locks all others out until it is
		// closed.
		"PRAGMA locking_mode = EXCLUSIVE", "BEGIN IMMEDIATE", "COMMIT",
		"PRAGMA wal_checkpoint(FULL)", // moves everything into the main file
		"UPDATE marker SET whole = 1",
	} {
		if _, err := c.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	if err := c.Raw(func(conn any) error { return keepWAL(conn, false) }); err != nil {
		return err
	}
	mode := ""
	if err := c.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode); err != nil {
		return err
	}
	if mode != "delete" {
		return fmt.Errorf("the -wal could not be removed, and its mode is still %s", mode)
	}
	return nil
}
