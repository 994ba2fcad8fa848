package pkg_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// maxLines is the most that a Go file of this module may have, tests included. A
// longer file has more than one subject.
const maxLines = 400

// TestFilesAreShort: no Go file has more than maxLines lines.
func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"../functions", "../infra", "../pkg"} {
		seen := 0
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "node_modules":
				return filepath.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go":
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			seen++
			if n := bytes.Count(text, []byte("\n")); n > maxLines {
				t.Errorf("%s has %d lines, want %d at most: split it by subject", path, n, maxLines)
			}
			return nil
		})
		if err != nil || seen == 0 {
			t.Errorf("%s: %d Go files, %v", root, seen, err)
		}
	}
}
