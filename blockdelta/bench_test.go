package blockdelta

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The pause window's part: ns/op is one cut, whatever was written.
func BenchmarkCut(b *testing.B) {
	for _, blocks := range []int{16, 4096, 65536} {
		b.Run(fmt.Sprintf("dirty=%d", blocks), func(b *testing.B) {
			o := open(b, hugeBase{1 << 20})
			p := patterned(blocks*BlockBytes, 1)
			must(b, o.WriteAt(b.Context(), p, 0))
			var spent time.Duration
			for b.Loop() {
				began := time.Now()
				d, err := o.Cut(b.Context())
				spent += time.Since(began)
				must(b, err)
				d.Rollback() // under an empty top: the same blocks are cut again
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/cut")
		})
	}
}

// ns/block of a commit, with the scratch space given back and punched.
func BenchmarkCommit(b *testing.B) {
	const blocks = 4096
	base := hugeBase{1 << 20}
	o := open(b, base)
	p := patterned(blocks*BlockBytes, 1)
	var commit, reclaim time.Duration
	for b.Loop() {
		must(b, o.WriteAt(b.Context(), p, 0))
		d, err := o.Cut(b.Context())
		must(b, err)
		began := time.Now()
		d.Commit(base)
		commit += time.Since(began)
		settle(o)
		reclaim += time.Since(began)
	}
	b.ReportMetric(float64(commit.Nanoseconds())/float64(b.N)/blocks, "ns/block")
	b.ReportMetric(float64(reclaim.Nanoseconds())/float64(b.N)/blocks, "ns/block-reclaimed")
}

func BenchmarkOverlay(b *testing.B) {
	const blocks = 16384 // 64 MiB
	for _, bytes := range []int{BlockBytes, 64 << 10, 1 << 20} {
		for _, verb := range []string{"read", "write"} {
			b.Run(fmt.Sprintf("%s/%dKiB", verb, bytes>>10), func(b *testing.B) {
				o := open(b, hugeBase{blocks})
				must(b, o.WriteAt(b.Context(), patterned(blocks*BlockBytes, 1), 0))
				p := patterned(bytes, 2)
				b.SetBytes(int64(bytes))
				for b.Loop() {
					off := rand.Int64N((blocks*BlockBytes-int64(bytes))/BlockBytes) * BlockBytes
					if verb == "read" {
						must(b, o.ReadAt(b.Context(), p, off))
					} else {
						must(b, o.WriteAt(b.Context(), p, off))
					}
				}
			})
		}
	}
}
