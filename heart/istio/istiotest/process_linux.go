package istiotest

import "syscall"

// diesWithUs ends a child when the test is killed.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
