//go:build !linux

package programs

import "syscall"

// DieWithUs does nothing where the kernel cannot tie one process to another.
func DieWithUs() *syscall.SysProcAttr { return nil }
