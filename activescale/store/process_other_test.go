//go:build !linux

package store

import "syscall"

func diesWithUs() *syscall.SysProcAttr { return nil }
