//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

import "errors"

// Lock is not implemented here.
func Lock(string) (unlock func(), err error) {
	return nil, errors.New("no file locks on this system")
}
