package main

import (
	"runtime"
	"runtime/metrics"
	"sync"
)

// collector decides when garbage is collected: when a command has ended, and only if there is enough of it. The runtime's
// own ways are by time, which would dirty pages of an idle guest, or by growth from a few megabytes on.
type collector struct {
	mu   sync.Mutex // guards the rest
	next uint64     // heap size from which it is worth it
}

const (
	garbageBytes = 4 << 20
	heapMetric   = "/memory/classes/heap/objects:bytes"
)

func (c *collector) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heapBytes() < max(c.next, garbageBytes) {
		return
	}
	runtime.GC()
	c.next = 2*heapBytes() + garbageBytes
}

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: heapMetric}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
