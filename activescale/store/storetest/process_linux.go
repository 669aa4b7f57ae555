package storetest

import "syscall"

// diesWithUs ends a program whose test was killed.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
