//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dynamotest

import "errors"

// lock is not implemented here; run npm ci by hand.
func lock(string) (unlock func(), err error) {
	return nil, errors.New("run npm ci in the server's folder first")
}
