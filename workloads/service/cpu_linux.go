package service

import "golang.org/x/sys/unix"

// threadCPU is the CPU time that the calling thread has used, in ns.
func threadCPU() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano(), err
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
