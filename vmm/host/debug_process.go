package host

import (
	"cmp"
	"context"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// debugProcess tells what this process holds, after a garbage collection: what a leak is found by.
func (h *Host) debugProcess(_ context.Context, _ string, d *DebugDump) error {
	debug.FreeOSMemory() // so that the system, too, counts only what is in use
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	records := make([]runtime.StackRecord, runtime.NumGoroutine()+64)
	n, ok := runtime.GoroutineProfile(records)
	for !ok {
		records = make([]runtime.StackRecord, n+64)
		n, ok = runtime.GoroutineProfile(records)
	}
	d.fact("pid", "%d", os.Getpid())
	d.fact("goroutines", "%d", n)
	d.fact("heap bytes", "%d", m.HeapAlloc)
	d.fact("system bytes", "%d", m.Sys-m.HeapReleased)
	counts := map[string]int{}
	for _, r := range records[:n] {
		counts[whereIs(r.Stack())]++
	}
	d.Columns = []string{"\tGOROUTINES", "WHERE"}
	for _, where := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		d.row(counts[where], where)
	}
	return nil
}

// whereIs names the innermost functions of ours on a stack, and the outermost one at all, which is what was started.
func whereIs(stack []uintptr) string {
	const most = 3
	var ours []string
	last := ""
	for frames := runtime.CallersFrames(stack); ; {
		frame, more := frames.Next()
		if name := frame.Function; name != "runtime.goexit" && name != "" {
			last = name
			if strings.HasPrefix(name, "flash/") && len(ours) < most {
				ours = append(ours, strings.TrimPrefix(name, "flash/"))
			}
		}
		if !more {
			break
		}
	}
	if len(ours) == 0 {
		return last
	}
	return strings.Join(ours, " < ")
}
