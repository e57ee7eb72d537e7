package uffd

import (
	"fmt"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
	"flash/memtrack/pagemap"
)

const benchPages = 512 << 20 / pageBytes

// ms of pause to scan 512 MiB, all absent but for 1 % written.
func BenchmarkScan512MiB(b *testing.B) {
	need(b, true)
	src := memtest.NewSource(benchPages, 1, 1)
	c, p := open(b, newBase(b, src), Options{Protect: true})
	tracker := startScan(b, p.Memory())
	for page := uint64(0); page < benchPages; page += 100 {
		c.Write(b, page, 1, 1)
	}
	cut(b, tracker)
	for b.Loop() {
		if _, err := tracker.Pending(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/scan")
}

// A whole cut of dirty pages: scan, copy, delta. Runs of 4 pages.
func BenchmarkCut(b *testing.B) {
	need(b, true)
	for _, dirtyMiB := range []uint64{0, 8, 64} {
		b.Run(fmt.Sprintf("%dMiB", dirtyMiB), func(b *testing.B) {
			src := memtest.NewSource(benchPages, 1, 1)
			c, p := open(b, newBase(b, src), Options{Protect: true})
			tracker := startScan(b, p.Memory())
			for b.Loop() {
				b.StopTimer()
				for run := range dirtyMiB << 20 / pageBytes / 4 {
					<-c.Begin("write", run*8, 4, 1)
				}
				b.StartTimer()
				d, err := tracker.Cut(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if want := int(dirtyMiB << 20 / pageBytes); d.Len() != want {
					b.Fatalf("%d pages, want %d", d.Len(), want)
				}
				b.StopTimer()
				d.Commit()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/cut")
		})
	}
}

// Copying a machine's present pages, all and every other.
func BenchmarkView(b *testing.B) {
	need(b, true)
	const pages = 64 << 20 / pageBytes
	c := memtest.Start(b, pages*2, true)
	c.Write(b, 0, pages*2, 1)
	backed, err := memtrack.OpenBacked(c.Span())
	if err != nil {
		b.Fatal(err)
	}
	defer backed.Close()
	dst := make([]byte, pages*pageBytes)
	for step, name := range []string{1: "contiguous", 2: "every-other"} {
		if step == 0 {
			continue
		}
		var asked []uint64
		for i := range uint64(pages) {
			asked = append(asked, i*uint64(step))
		}
		for way, m := range map[string]memtrack.Memory{"process": memtrack.NewProcess(c.Span()), "file": backed} {
			b.Run(way+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					if err := m.View(b.Context(), asked, dst); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// µs from the touch of an absent page to its reader going on, seen by the reader's process (32 pages an access).
func BenchmarkFault(b *testing.B) {
	need(b, true)
	const pages = 1 << 16
	src := memtest.NewSource(pages, 0, 1)
	c, p := open(b, newBase(b, src), Options{Protect: true})
	startScan(b, p.Memory())
	next := uint64(0)
	for b.Loop() {
		if next+32 > pages {
			b.StopTimer()
			c, p = open(b, newBase(b, src), Options{Protect: true})
			startScan(b, p.Memory())
			next = 0
			b.StartTimer()
		}
		<-c.Begin("write", next, 32, 1)
		next += 32
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/32, "µs/fault")
}

func BenchmarkPrefetch(b *testing.B) {
	for name, share := range map[string]float64{"data": 0, "zero": 1} {
		b.Run(name, func(b *testing.B) {
			const pages = 1 << 14
			src := memtest.NewSource(pages, share, 1)
			all := make([]uint64, pages)
			for i := range all {
				all[i] = uint64(i)
			}
			for b.Loop() {
				base, err := NewBase(src)
				if err != nil {
					b.Fatal(err)
				}
				if err := base.Prefetch(b.Context(), all); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				base.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(pages)*float64(b.N)/b.Elapsed().Seconds(), "pages/s")
		})
	}
}

// ms to attach to a waiting process and arm 512 MiB.
func BenchmarkAttach(b *testing.B) {
	need(b, true)
	base := newBase(b, memtest.NewSource(benchPages, 1, 1))
	for b.Loop() {
		b.StopTimer()
		c := memtest.Start(b, benchPages, true)
		b.StartTimer()
		p, err := Open(b.Context(), c.Span(), base, Options{Protect: true})
		if err != nil {
			b.Fatal(err)
		}
		tracker := pagemap.NewScan(memtrack.Same)
		if err := tracker.Start(p.Memory()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		tracker.Stop()
		c.Kill()
		p.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/attach")
}

// Comparing hashes of 64 MiB.
func BenchmarkHashCompare64MiB(b *testing.B) {
	const pages = 64 << 20 / pageBytes
	c := memtest.Start(b, pages, true)
	c.Write(b, 0, pages, 1)
	tracker := memtrack.NewHashTracker(memtrack.Same, 1)
	if err := tracker.Start(memtrack.NewProcess(c.Span())); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(pages * pageBytes)
	for b.Loop() {
		if _, err := tracker.Pending(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
