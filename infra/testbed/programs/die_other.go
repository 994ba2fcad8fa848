//go:build !linux

package programs

import "syscall"

// DieWithUs returns nil, because this kernel cannot kill a process when another one ends.
func DieWithUs() *syscall.SysProcAttr { return nil }
