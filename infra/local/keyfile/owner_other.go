//go:build !unix

package keyfile

import "io/fs"

// openToOthers cannot check modes here. A file is as private as its folder, and a folder in the
// user's profile belongs to the user.
func openToOthers(fs.FileInfo) bool { return false }

// ofAnother cannot check owners here.
func ofAnother(fs.FileInfo) bool { return false }
