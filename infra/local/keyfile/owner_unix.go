//go:build unix

package keyfile

import (
	"io/fs"
	"os"
	"syscall"
)

// ofAnother says that a file belongs to another user than the one who runs this.
func ofAnother(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) != os.Getuid()
}
