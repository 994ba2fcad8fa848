//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package chaintest

import "errors"

// lock is not implemented here; run npm ci by hand.
func lock(string) (unlock func(), err error) {
	return nil, errors.New("run npm ci in the node's folder first")
}
