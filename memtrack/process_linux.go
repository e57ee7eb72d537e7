package memtrack

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	maxRuns      = 1024     // IOV_MAX
	maxViewBytes = 16 << 20 // copied between two looks at ctx: some 5 ms
)

// View copies pages, large numbers of them on several cores.
func (p *Process) View(ctx context.Context, pages []uint64, dst []byte) error {
	if err := checkView(p, pages, dst); err != nil {
		return err
	}
	return inParts(pages, dst, func(pages []uint64, dst []byte) error { return p.view(ctx, pages, dst) })
}

// view copies pages on this thread; neighbours are one iovec, and up to 1024 iovecs or 16 MiB one system call.
func (p *Process) view(ctx context.Context, pages []uint64, dst []byte) error {
	runs := make([]unix.RemoteIovec, 0, min(maxRuns, len(pages)))
	for len(pages) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		taken := 0
		runs = runs[:0]
		for taken < len(pages) && taken < maxViewBytes/PageBytes {
			if taken > 0 && pages[taken] == pages[taken-1]+1 {
				runs[len(runs)-1].Len += PageBytes
			} else if len(runs) == maxRuns {
				break
			} else {
				runs = append(runs, unix.RemoteIovec{Base: uintptr(p.span.Address(pages[taken])), Len: PageBytes})
			}
			taken++
		}
		copied, err := p.readRuns(runs, dst[:taken*PageBytes])
		if err != nil {
			return fmt.Errorf("read guest page %d of process %d: %w", pages[min(copied/PageBytes, len(pages)-1)], p.span.PID, err)
		}
		pages, dst = pages[taken:], dst[taken*PageBytes:]
	}
	return nil
}

// readRuns fills dst from runs, which it consumes, and says how many bytes it got before an error.
func (p *Process) readRuns(runs []unix.RemoteIovec, dst []byte) (int, error) {
	copied := 0
	for copied < len(dst) {
		local := []unix.Iovec{{Base: &dst[copied]}}
		local[0].SetLen(len(dst) - copied)
		n, err := unix.ProcessVMReadv(p.span.PID, local, runs, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return copied, err
		}
		if n == 0 {
			return copied, unix.EFAULT
		}
		copied += n
		for n > 0 { // a short read ends inside a run when a fault was interrupted
			if n < runs[0].Len {
				runs[0].Base, runs[0].Len = runs[0].Base+uintptr(n), runs[0].Len-n
				break
			}
			n -= runs[0].Len
			runs = runs[1:]
		}
	}
	return copied, nil
}
