//go:build !linux

package testbed

import (
	"errors"
	"syscall"
)

// isolated is an error: network namespaces are Linux's.
func isolated(...string) (code int, err error) {
	return 0, errors.New("network namespaces are Linux's")
}

// DieWithUs does nothing where the kernel cannot tie one process to another.
func DieWithUs() *syscall.SysProcAttr { return nil }
