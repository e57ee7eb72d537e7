package host

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// anonymousBytes is what this process holds in memory, files apart.
func anonymousBytes(t testing.TB) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Error(err)
		return 0
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Error(err)
	}
	return kib << 10
}

// watchOwnMemory looks at this process's memory until it is asked for the most that was added.
func watchOwnMemory(t testing.TB) (most func() int64) {
	before := anonymousBytes(t)
	quit, result := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		most := before
		for {
			select {
			case <-tick.C:
				most = max(most, anonymousBytes(t))
			case <-quit:
				result <- most - before
				return
			}
		}
	}()
	return func() int64 { close(quit); return <-result }
}
