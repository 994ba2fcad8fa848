//go:build !linux

package testbed

import "errors"

// Isolated is an error: network namespaces are Linux's.
func Isolated(...string) (code int, err error) {
	return 0, errors.New("network namespaces are Linux's")
}
