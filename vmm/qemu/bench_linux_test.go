package qemu

import (
	"sort"
	"testing"
	"time"

	"flash/vmm"
)

// BenchmarkRestore: ms to a paused machine, from a waiting process and from none.
func BenchmarkRestore(b *testing.B) {
	s := booted(b)
	for name, size := range map[string]int{"pool": 1, "spawn": -1} {
		b.Run(name, func(b *testing.B) {
			e := testEngine(b, Config{PoolSize: size})
			first := restore(b, e, s, vmm.Attach{MemoryKey: "k"})
			first.resume()
			first.wants("x", count(2))
			set := first.Touched()
			var took, answers []time.Duration
			for b.Loop() {
				if size > 0 {
					waitPool(b, e, size)
				}
				began := time.Now()
				g := restore(b, e, s, vmm.Attach{WorkingSet: set})
				took = append(took, time.Since(began))
				g.resume()
				g.wants("x", count(2))
				answers = append(answers, time.Since(began))
				g.Close()
			}
			b.ReportMetric(median(took), "ms-to-paused")
			b.ReportMetric(median(answers), "ms-to-answer")
			b.ReportMetric(float64(len(set)), "pages-in-set")
		})
	}
}

// BenchmarkCheckpoint: the parts of a pause.
func BenchmarkCheckpoint(b *testing.B) {
	s := booted(b)
	e := testEngine(b, Config{PoolSize: -1})
	g := restore(b, e, s, vmm.Attach{})
	g.resume()
	var parts [5][]time.Duration
	pages := 0
	n := 1
	for b.Loop() {
		n++
		g.wants("x", count(n))
		s = g.checkpoint(s, nil)
		t := s.times
		for i, d := range []time.Duration{t.stop, t.cut, t.state, t.resume, t.stop + t.cut + t.state + t.resume} {
			parts[i] = append(parts[i], d)
		}
		pages += s.pages
	}
	for i, unit := range []string{"ms-stop", "ms-cut", "ms-state", "ms-resume", "ms-pause"} {
		b.ReportMetric(median(parts[i]), unit)
	}
	b.ReportMetric(float64(pages)/float64(b.N), "pages")
	b.ReportMetric(float64(len(s.state.Data))/1000, "KB-state")
}

func median(d []time.Duration) float64 {
	sort.Slice(d, func(i, j int) bool { return d[i] < d[j] })
	return float64(d[len(d)/2].Microseconds()) / 1000
}
