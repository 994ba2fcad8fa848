package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Backup copies the ledger, as it is at one moment, to a new file, and returns the number of
// its records. Meanwhile this process and others can use the ledger. The copy is a single file
// that only this user can read. Open accepts it without the option Accept. If the new file
// already exists, the error is fs.ErrExist.
func (s *Store) Backup(ctx context.Context, to string) (records int, err error) {
	to, err = filepath.Abs(to)
	if err != nil {
		return 0, wrap("backup", err)
	}
	if _, err := os.Lstat(to); err == nil {
		return 0, wrap("backup", fmt.Errorf("%s: %w", to, os.ErrExist))
	}
	part, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*.part")
	if err != nil {
		return 0, wrap("backup", err)
	}
	defer os.Remove(part.Name()) //nolint:errcheck // the backup is a hard link with another name
	err = part.Close()
	if err == nil {
		records, err = s.copyTo(ctx, location{part.Name()})
	}
	if err == nil {
		err = os.Link(part.Name(), to) // fails if a file of that name has been created meanwhile
	}
	if err == nil {
		err = syncFolder(filepath.Dir(to))
	}
	return records, wrap("backup", err)
}

// copyTo copies the ledger into an empty file, and marks the copy as whole at the end.
func (s *Store) copyTo(ctx context.Context, to location) (records int, err error) {
	if _, err := s.db.ExecContext(ctx, "VACUUM INTO ?", to.path); err != nil {
		return 0, err
	}
	db, err := to.connect(busyTimeout)
	if err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM records").Scan(&records)
	if err == nil {
		_, err = db.ExecContext(ctx, "UPDATE marker SET whole = 1")
	}
	return records, errors.Join(err, db.Close())
}

// syncFolder writes the file names in a folder to disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
