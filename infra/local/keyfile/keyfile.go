// Package keyfile reads and writes files that only their owner can access.
package keyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxText is more than a key with its white space takes, in bytes.
const maxText = 256

// Read returns the text of a key file, of which it reads at most 256 bytes, as ReadUpTo does.
func Read(path string) ([]byte, error) { return ReadUpTo(path, maxText) }

// ReadUpTo returns the text of a file, of which it reads at most so many bytes. The file
// must be a regular one, not a link, of the user who runs this, and nobody else may
// read or write it.
func ReadUpTo(path string, most int64) ([]byte, error) {
	// Opening a pipe would wait for a writer, so that its kind is looked at first.
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file; a link is not followed", path)
	}
	f, err := os.Open(path) // #nosec G304 -- the operator names it, or the file of the ledger
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
	case openToOthers(opened):
		return nil, fmt.Errorf("others than its owner can access %q (mode %04o): chmod 600 makes it private", path, opened.Mode().Perm())
	case ofAnother(opened):
		return nil, fmt.Errorf("%q belongs to another user, who can read the key: chown it if that is you", path)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// Write makes a file that nobody but its owner can read. It is there as a whole, on the
// disk, or not at all. A file that is there already stays, and the error is fs.ErrExist.
func Write(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // its other name stays
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
