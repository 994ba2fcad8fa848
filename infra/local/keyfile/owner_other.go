//go:build !unix

package keyfile

import "io/fs"

// othersCanAccess always returns false, because systems other than Unix have no file modes to
// check. On these systems, the permissions of a file's folder protect the file. The folders in a
// user's profile keep other users out.
func othersCanAccess(fs.FileInfo) bool { return false }

// belongsToOther always returns false, because it cannot check the owner of a file on systems
// other than Unix.
func belongsToOther(fs.FileInfo) bool { return false }
