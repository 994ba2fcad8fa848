//go:build !linux

package testbed

import "errors"

// runIsolated returns an error, because only Linux has network namespaces.
func runIsolated(...string) (code int, err error) {
	return 0, errors.New("network namespaces are Linux's")
}
