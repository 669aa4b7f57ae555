//go:build !linux

package storetest

import "syscall"

func diesWithUs() *syscall.SysProcAttr { return nil }
