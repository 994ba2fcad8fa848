//go:build unix

package keyfile

import (
	"io/fs"
	"os"
	"syscall"
)

// openToOthers says that others than the owner may use a file.
func openToOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// ofAnother says that a file belongs to another user than the one who runs this.
func ofAnother(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) != os.Getuid()
}
