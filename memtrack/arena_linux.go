package memtrack

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// newArena maps and touches n bytes. Huge pages, where there are any, make touching about ten times cheaper.
func newArena(n int) (*arena, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d MiB for changed pages: %w", n>>20, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a wish; without huge pages the arena works the same
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
		for i := 0; i < n; i += PageBytes { // kernels before 5.14
			b[i] = 0
		}
	}
	return &arena{bytes: b}, nil
}

func (a *arena) release() {
	_ = unix.Munmap(a.bytes) // can only fail for an address that isn't mapped, which this one is
	a.bytes = nil
}
