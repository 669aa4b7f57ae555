//go:build !linux

package prom

import "syscall"

func diesWithUs() *syscall.SysProcAttr { return nil }
