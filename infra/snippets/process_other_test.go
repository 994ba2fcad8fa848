//go:build !linux

package snippets

import "syscall"

// dieWithUs does nothing where the kernel cannot tie one process to another.
func dieWithUs() *syscall.SysProcAttr { return nil }
