package programs

import "syscall"

// DieWithUs has the kernel end a process when the thread that started it ends.
func DieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
