package host

import "golang.org/x/sys/unix"

// standBack lowers the calling thread's priority: on Linux, setpriority(2) with 0 means the thread. Where it can't, the work
// is done all the same.
func standBack(nice int) { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice) }
