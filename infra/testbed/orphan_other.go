//go:build !linux

package testbed

import "syscall"

// DieWithUs does nothing where the kernel cannot tie one process to another.
func DieWithUs() *syscall.SysProcAttr { return nil }
