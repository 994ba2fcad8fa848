//go:build unix

package keyfile

import (
	"io/fs"
	"os"
	"syscall"
)

// othersCanAccess reports whether users other than the owner can access a file.
func othersCanAccess(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// belongsToOther reports whether a file belongs to a user other than the current one.
func belongsToOther(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) != os.Getuid()
}
