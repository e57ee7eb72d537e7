package host

import (
	"runtime"
	"sync"
)

// gentleness is how much a thread stands back for others: at 10 it gets a tenth of what they do where there isn't enough
// (sched(7): each step is a factor of 1.25).
const gentleness = 10

// gently runs f on a thread of its own that stands back for guests and their checkpoints where the CPUs are busy. f is one
// goroutine's work; what it starts runs as ever.
func gently(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		// Never unlocked: raising a thread's priority again takes a privilege, so this one ends with the goroutine.
		runtime.LockOSThread()
		standBack(gentleness)
		f()
	})
	wg.Wait()
}
