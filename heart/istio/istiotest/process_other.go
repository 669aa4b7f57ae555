//go:build !linux

package istiotest

import "syscall"

func diesWithUs() *syscall.SysProcAttr { return nil }
