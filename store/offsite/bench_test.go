package offsite

import (
	"context"
	"testing"

	"flash/store"
)

// BenchmarkPushOfOneCheckpoint: what a push costs that brings a checkpoint of 160 pages to a VM of 64 MiB, of which all is
// there already, on a bucket that takes no time. requests/push is what latency multiplies; cold is a process that has pushed
// nothing yet, and so looks at every node.
func BenchmarkPushOfOneCheckpoint(b *testing.B) {
	const slots = 64 << 20 / 4096
	for name, cold := range map[string]bool{"warm": false, "cold": true} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			h := newHost(b, "a", newMemory(), newClock())
			h.create("vm")
			put := func(first, step, count uint64) {
				v, err := h.s.VM(ctx, "vm")
				h.must(err)
				var parent store.SnapshotID
				if v.Head >= 0 {
					c, err := h.s.Checkpoint(ctx, "vm", v.Head)
					h.must(err)
					parent = c.Snapshot
				}
				txn, err := h.s.Begin(ctx, parent)
				h.must(err)
				defer txn.Abort()
				ch := state{}
				for i := range count {
					ch[(first+i*step)%slots] = first + i + 1
				}
				_, err = txn.PutImage(ctx, store.ImageSpec{Name: "mem", Bytes: slots * 4096}, ch)
				h.must(err)
				_, err = txn.Commit(ctx, store.Meta{Kind: "checkpoint"}, store.Move{VM: "vm", ExpectHead: v.Head})
				h.must(err)
			}
			put(0, 1, slots)
			h.push("vm")
			first, requests := uint64(slots), 0
			for b.Loop() {
				b.StopTimer()
				put(first, 97, 160)
				first += 160
				if cold {
					h.reconnect()
				}
				before := h.requests()
				b.StartTimer()
				h.push("vm")
				requests += h.requests() - before
			}
			b.ReportMetric(float64(requests)/float64(b.N), "requests/push")
		})
	}
}
