package uffd

import (
	"context"

	"flash/memtrack"
)

// memory is an attached machine's memory. Absent pages are filled before they are read, so that nobody waits in the kernel
// for a page that doesn't come, and ctx is obeyed.
type memory struct {
	*memtrack.Process
	base *Base
}

// Memory gives the machine's memory, to be used until Close; always the same value.
func (p *Pager) Memory() memtrack.Memory { return p.memory }

func (m *memory) View(ctx context.Context, pages []uint64, dst []byte) error {
	if err := m.base.Prefetch(ctx, pages); err != nil {
		return err
	}
	return m.Process.View(ctx, pages, dst)
}

// Absent tells whether a page has not come in. Such a page can't have been written.
func (m *memory) Absent(page uint64) bool { return !m.base.Present(page) }

// Original reads what a page held when it came in.
func (m *memory) Original(page uint64, dst []byte) error { return m.base.readBack(page, dst) }
