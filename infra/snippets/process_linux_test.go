package snippets

import "syscall"

// dieWithUs has the kernel end a process when the test binary dies.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
