//go:build unix && !linux

package lambdahost

import "syscall"

// sysProcAttr puts a process into a group of its own. Only Linux can tie its
// life to the host's as well.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
