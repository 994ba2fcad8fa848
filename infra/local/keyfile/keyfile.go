// Package keyfile reads and writes files that only their owner can access.
package keyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxText is the number of bytes after which Read stops. The text of a key, with white space
// around it, is shorter.
const maxText = 256

// Read returns the text of a key file. It reads at most maxText bytes and makes the same
// checks as ReadUpTo.
func Read(path string) ([]byte, error) { return ReadUpTo(path, maxText) }

// ReadUpTo returns the text of a file. It stops after limit bytes. The file must be regular and
// not a link, it must belong to the current user, and nobody else may be able to read or write
// it.
func ReadUpTo(path string, limit int64) ([]byte, error) {
	// Opening a pipe would wait for a writer, so the kind of file is checked first.
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file; a link is not followed", path)
	}
	f, err := os.Open(path) // #nosec G304 -- the operator chooses the path
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !os.SameFile(named, opened):
		return nil, fmt.Errorf("%q was replaced while it was opened", path)
	case othersCanAccess(opened):
		return nil, fmt.Errorf("others than its owner can access %q (mode %04o): chmod 600 makes it private", path, opened.Mode().Perm())
	case belongsToOther(opened):
		return nil, fmt.Errorf("%q belongs to another user, who can read the key: chown it if that is you", path)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Write creates a file that only its owner can read. The file is written to disk completely or
// not at all. If a file with that name exists, Write leaves it unchanged and returns
// fs.ErrExist.
func Write(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // CreateTemp creates the file with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // removes the temporary name; the link below gives the file its final one
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
