package qemu

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// eagerBatchPages is how many pages are asked of the source at a time: 16 MiB.
const eagerBatchPages = 4096

// loadAll writes all of the snapshot's memory into the RAM of a QEMU process, through the file behind it, and sees to it
// that whatever QEMU had put there is gone.
func (s *sharedBase) loadAll(ctx context.Context, span memtrack.Span, backing memtrack.Mapping) error {
	if span.Pages() != s.keyed.src.Slots() {
		return fmt.Errorf("load the memory of process %d: it has %d pages, the snapshot %d", span.PID, span.Pages(), s.keyed.src.Slots())
	}
	f, err := memtrack.OpenBehind(span.PID, backing, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("load the memory of process %d: %w", span.PID, err)
	}
	defer f.Close()
	for {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(span.End-span.Start))
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("clear the memory of process %d: %w", span.PID, err)
	}
	slots := make([]uint64, 0, eagerBatchPages)
	for page := uint64(0); page < span.Pages(); page++ {
		slots = append(slots, page)
		if len(slots) < eagerBatchPages && page+1 < span.Pages() {
			continue
		}
		err := s.keyed.src.ReadSlots(ctx, slots, func(slot uint64, data []byte) error {
			if data == nil {
				return nil
			}
			_, err := f.WriteAt(data, int64(slot*memtrack.PageBytes))
			return err
		})
		if err != nil {
			return fmt.Errorf("load the memory of process %d: %w", span.PID, err)
		}
		slots = slots[:0]
	}
	s.mu.Lock()
	s.loaded = true
	s.mu.Unlock()
	return nil
}
