package nbd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Loopback over one connection: MB/s, and ns/op is the inverse of IOPS.
func BenchmarkLoopback(b *testing.B) {
	const blocks = 16384 // 64 MiB
	for _, bytes := range []int{4 << 10, 64 << 10, 1 << 20} {
		for command, verb := range []string{"read", "write"} {
			for _, depth := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%dKiB/depth=%d", verb, bytes>>10, depth), func(b *testing.B) {
					_, _, path := serve(b, zeroBase{blocks: blocks})
					c := enter(b, path, "disk0")
					fill := make([]byte, 1<<20)
					for i := range fill {
						fill[i] = byte(i) | 1
					}
					for off := 0; off < blocks*block; off += len(fill) {
						must(b, c.write(fill, uint64(off)))
					}
					b.SetBytes(int64(bytes))
					slots := make(chan struct{}, depth)
					n := 0
					for b.Loop() {
						n++
						slots <- struct{}{}
						off := rand.Int64N((blocks*block-int64(bytes))/block) * block
						p := fill[:bytes]
						if command == 0 {
							p = make([]byte, bytes)
						}
						a := c.send(uint16(command), 0, uint64(off), uint32(bytes), p)
						go func() {
							if err := <-a; err != nil {
								b.Error(err)
							}
							<-slots
						}()
					}
					for range depth {
						slots <- struct{}{}
					}
					b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "IOPS")
				})
			}
		}
	}
}
