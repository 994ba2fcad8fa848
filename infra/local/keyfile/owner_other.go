//go:build !unix

package keyfile

import "io/fs"

// openToOthers knows no modes here: a file is as private as its folder, which for one in the
// user's profile is the user's.
func openToOthers(fs.FileInfo) bool { return false }

// ofAnother knows no owners here.
func ofAnother(fs.FileInfo) bool { return false }
