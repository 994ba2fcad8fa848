package programs

import "syscall"

// DieWithUs returns attributes that make the kernel kill a process when the thread that started
// it ends.
func DieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
