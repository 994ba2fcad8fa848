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

// createFile creates an empty file unless the file exists.
func createFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Do not open an existing file: to close the file would end the locks that this process
	// has on the file.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return f.Close()
}

// maxCheckedPages is the size of the largest file, in pages of 4 KB, that Open checks as a
// whole. The check takes some 12 s for 1,000,000 records. In a larger file, SQLite or the
// checksum of a record shows that a page is damaged only when the page is read.
const maxCheckedPages = 1 << 16

// storedSchemaQuery asks for the statements of schema as SQLite has stored them.
const storedSchemaQuery = `SELECT coalesce(group_concat(sql, ';'), '') FROM sqlite_schema
	WHERE tbl_name = 'records' AND (type, name) IN (VALUES ('table', 'records'), ('index', 'lists'))`

// soundSchema returns the text that an undamaged file gives for storedSchemaQuery. checkFile
// compares the text of a file with it, because SQLite's integrity check does not check the
// statements. If the condition of the index were damaged, a list would lack records.
func soundSchema() string {
	return strings.NewReplacer("\nCREATE", "CREATE", "IF NOT EXISTS ", "").Replace(strings.TrimSuffix(schema, ";"))
}

// checkFile checks that a file is empty, or an undamaged ledger of this version. It changes
// nothing.
func checkFile(ctx context.Context, db *sql.DB, maxPages int) error {
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
		{storedSchemaQuery, &stored},
	} {
		if err := read(q.query, q.into); err != nil {
			return err
		}
	}
	if pages <= maxPages {
		if err := read("PRAGMA integrity_check(1)", &health); err != nil {
			return err
		}
	}
	switch {
	case health != "ok":
		return fmt.Errorf("%w: %.200s", ledger.ErrCorrupt, health)
	case pages > 0 && (app != applicationID || form != schemaVersion):
		return fmt.Errorf("%w: application %#x, form %d", ledger.ErrCorrupt, app, form)
	case pages > 0 && stored != soundSchema():
		return fmt.Errorf("%w: its tables are %.600q", ledger.ErrCorrupt, stored)
	}
	return nil
}

// createTables creates the missing tables and sets the file's journal mode, so that SQLite
// uses a -wal. Other processes see either an empty file or a file with all tables, because one
// transaction creates all of them.
func createTables(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tables := 0
	markers := 0
	err := c.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables)
	if err == nil {
		err = c.QueryRowContext(ctx, countMarkersQuery).Scan(&markers)
	}
	if err == nil && tables == 0 {
		_, err = c.ExecContext(ctx, fmt.Sprintf("%s PRAGMA application_id = %d; PRAGMA user_version = %d", schema, applicationID, schemaVersion))
	}
	if err == nil && markers == 0 {
		_, err = c.ExecContext(ctx, createMarkerQuery)
	}
	if err != nil {
		_, _ = c.ExecContext(ctx, "ROLLBACK") // the first error matters
		return err
	}
	if _, err := c.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	// The journal mode is stored in the file. It cannot be set inside a transaction, or while
	// another process sets it. Beginning another transaction waits for that process.
	const tries = 10
	for range tries {
		_, err = c.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		if resultCode(err) != sqlite3.SQLITE_BUSY {
			return err
		}
		if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE; COMMIT"); err != nil {
			return err
		}
	}
	return err
}
