package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// create makes an empty file, unless there is one.
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// To close a file that is there would end the locks that this process has on it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return f.Close()
}

// mostChecked is how many pages of 4 KB a file may have that is checked as a whole when it is
// opened: a check takes some 12 s for 1,000,000 records. In a larger file a damaged page is
// noticed when it is read, by SQLite or by the checksum of a record.
const mostChecked = 1 << 16

// tables selects the statements of schema as SQLite has stored them.
const tables = `SELECT coalesce(group_concat(sql, ';'), '') FROM sqlite_schema
	WHERE tbl_name = 'records' AND (type, name) IN (VALUES ('table', 'records'), ('index', 'lists'))`

// asStored is schema as a sound file has it. SQLite's own check does not compare it: with a
// damaged condition of the index, records would be missing in a list.
func asStored() string {
	return strings.NewReplacer("\nCREATE", "CREATE", "IF NOT EXISTS ", "").Replace(strings.TrimSuffix(schema, ";"))
}

// prepare checks a file, and changes none.
func prepare(ctx context.Context, db *sql.DB, mostChecked int) error {
	var pages, app, form int
	stored := ""
	health := "ok"
	read := func(query string, into any) error { return db.QueryRowContext(ctx, query).Scan(into) }
	for _, q := range []struct {
		query string
		into  any
	}{
		{"PRAGMA page_count", &pages},
		{"PRAGMA application_id", &app},
		{"PRAGMA user_version", &form},
		{tables, &stored},
	} {
		if err := read(q.query, q.into); err != nil {
			return err
		}
	}
	if pages <= mostChecked {
		if err := read("PRAGMA integrity_check(1)", &health); err != nil {
			return err
		}
	}
	switch {
	case health != "ok":
		return fmt.Errorf("%w: %.200s", ledger.ErrCorrupt, health)
	case pages > 0 && (app != application || form != version):
		return fmt.Errorf("%w: application %#x, form %d", ledger.ErrCorrupt, app, form)
	case pages > 0 && stored != asStored():
		return fmt.Errorf("%w: its tables are %.600q", ledger.ErrCorrupt, stored)
	}
	return nil
}

// complete makes the tables that are missing, and has the file used with a -wal. What another
// process sees is an empty file or one with every table.
func complete(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tables := 0
	markers := 0
	err := c.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables)
	if err == nil {
		err = c.QueryRowContext(ctx, marked).Scan(&markers)
	}
	if err == nil && tables == 0 {
		_, err = c.ExecContext(ctx, fmt.Sprintf("%s PRAGMA application_id = %d; PRAGMA user_version = %d", schema, application, version))
	}
	if err == nil && markers == 0 {
		_, err = c.ExecContext(ctx, marker)
	}
	if err != nil {
		_, _ = c.ExecContext(ctx, "ROLLBACK") // the first error matters
		return err
	}
	if _, err := c.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	// The mode is kept in the file, and cannot be set inside a transaction, nor while another
	// process sets it. That one is waited for by beginning another transaction.
	const tries = 10
	for range tries {
		_, err = c.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		if code(err) != sqlite3.SQLITE_BUSY {
			return err
		}
		if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE; COMMIT"); err != nil {
			return err
		}
	}
	return err
}
