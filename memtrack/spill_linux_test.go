package memtrack_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// anonymousBytes is what this process holds in memory, files apart.
func anonymousBytes(t testing.TB) int {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
