package service

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hasThreadClock says whether threadCPU works.
const hasThreadClock = true

// threadCPU is the calling thread and the CPU time in ns that it has used. The
// calls are raw: after others the Go runtime looks whether the thread is still
// in the system, time and again, and it is the replica's quota that pays (a
// fifth of the CPU time, measured at 5 ms in periods of 20 ms).
func threadCPU() (thread int, ns int64) {
	runtime.LockOSThread() // both answers are of one thread
	defer runtime.UnlockOSThread()
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0) // never missing
	return unix.Gettid(), t.Nano()
}

// processCPU is the CPU time that the process has used, user and system, in
// seconds.
func processCPU() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail for the process itself
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
