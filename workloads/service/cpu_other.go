//go:build !linux

package service

import "errors"

func threadCPU() (int64, error) { return 0, errors.ErrUnsupported }

func processCPU() float64 { return 0 } // no service starts without threadCPU
