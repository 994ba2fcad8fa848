package lambdahost

import "syscall"

// sysProcAttr puts a process into a group of its own, and has the kernel end it
// when the host dies: a frozen process would otherwise stay for ever.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
