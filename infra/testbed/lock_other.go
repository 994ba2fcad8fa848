//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package testbed

import "errors"

// lock is not implemented here.
func lock(string) (unlock func(), err error) {
	return nil, errors.New("no file locks on this system")
}
