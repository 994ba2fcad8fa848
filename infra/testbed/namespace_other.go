//go:build !linux

package testbed

import "errors"

// isolated is an error: network namespaces are Linux's.
func isolated(...string) (code int, err error) {
	return 0, errors.New("network namespaces are Linux's")
}
