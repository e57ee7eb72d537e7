package qemu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"flash/memtrack"
	"flash/memtrack/pagemap"
	"flash/memtrack/uffd"
)

// memorySupport is what this host can do with a guest's memory.
type memorySupport struct {
	lazy      bool   // absent pages come in when they are touched
	shared    bool   // machines of one snapshot share memory
	tracker   string // "pagemap-scan", "soft-dirty", "hash-compare"
	forOthers string // why a process without privilege can't have a userfaultfd; "": it can
	reasons   map[string]string
}

// probeMemory tries everything on memory of this process; some milliseconds.
func probeMemory(ctx context.Context) memorySupport {
	can, why := uffd.Probe()
	s := memorySupport{reasons: map[string]string{}, forOthers: why["others"]}
	s.lazy = can.Missing && can.Inject
	s.shared = s.lazy // the same private mapping gives both
	switch {
	case !can.Inject:
		s.reasons["lazy memory"] = why["inject"]
	case !can.Missing:
		s.reasons["lazy memory"] = why["missing"]
	}
	if !s.shared {
		s.reasons["shared memory"] = "needs lazy memory: " + s.reasons["lazy memory"]
	}
	s.tracker = s.probeTracker(can, why)
	return s
}

// probeTracker gives the best way to track and notes why better ones aren't there.
func (s *memorySupport) probeTracker(can uffd.Support, why map[string]string) string {
	switch {
	case !can.Inject:
		s.reasons["pagemap-scan"] = why["inject"]
	case !can.Async:
		s.reasons["pagemap-scan"] = why["async"]
	default:
		err := pagemap.Probe()
		if err == nil {
			return (&pagemap.Scan{}).Name()
		}
		s.reasons["pagemap-scan"] = err.Error()
	}
	if err := pagemap.ProbeSoftDirty(); err != nil {
		s.reasons["soft-dirty"] = err.Error()
		return (&memtrack.HashTracker{}).Name()
	}
	return (&pagemap.SoftDirty{}).Name()
}

// guestMemory is the RAM of one QEMU process: a memtrack.Memory. Absent pages are brought in before they are read.
type guestMemory struct {
	memtrack.Memory
	span    memtrack.Span
	pager   *uffd.Pager      // nil: nothing is absent
	backed  *memtrack.Backed // nil: pager is not
	tracker memtrack.Tracker
	scratch string
}

// openMemory takes hold of the RAM of a QEMU process that runs no guest code yet, and begins to track it. base nil: a
// booting machine, whose absent pages truly are zero. Otherwise the RAM holds what base holds: page by page when touched, or,
// where that can't be done, all of it before this returns. scratch is Attach's.
func openMemory(ctx context.Context, pid int, bytes uint64, base *sharedBase, scratch string, s memorySupport) (_ *guestMemory, err error) {
	span, backing, err := findRAM(pid, bytes)
	if err != nil {
		return nil, err
	}
	scans := s.tracker == (&pagemap.Scan{}).Name()
	m := &guestMemory{span: span, scratch: scratch}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	switch {
	case base != nil && s.lazy:
		if m.pager, err = base.attach(ctx, span, uffd.Options{Protect: scans}); err != nil {
			return nil, err
		}
		m.Memory = m.pager.Memory()
	case base != nil:
		if err := base.loadAll(ctx, span, backing); err != nil {
			return nil, err
		}
		if scans { // the kernel can track but not serve
			err = uffd.Protect(ctx, span)
		}
	case scans:
		err = uffd.Protect(ctx, span)
	}
	if err != nil {
		return nil, err
	}
	if m.pager == nil {
		if m.backed, err = memtrack.OpenBacked(span); err != nil {
			return nil, err
		}
		m.Memory = m.backed
	}
	m.tracker = newTracker(s.tracker, base != nil)
	if err := m.tracker.Start(m); err != nil {
		return nil, err
	}
	return m, nil
}

// newTracker makes a tracker by its name. A booted machine descends from nothing; a restored one from what it holds.
func newTracker(name string, restored bool) memtrack.Tracker {
	baseline := memtrack.Zeroed
	if restored {
		baseline = memtrack.Same
	}
	switch name {
	case (&pagemap.Scan{}).Name():
		return pagemap.NewScan(baseline)
	case (&pagemap.SoftDirty{}).Name():
		return pagemap.NewSoftDirty(baseline)
	}
	return memtrack.NewHashTracker(baseline, rand.Uint64())
}

// Span says where the RAM is in the process.
func (m *guestMemory) Span() memtrack.Span { return m.span }

// Scratch is the folder for copies of its pages that don't fit into memory.
func (m *guestMemory) Scratch() string { return m.scratch }

// sparse is what memory with absent pages can tell a tracker.
type sparse interface {
	Absent(page uint64) bool
	Original(page uint64, dst []byte) error
}

// Absent tells whether a page has not come in. Such a page can't have been written.
func (m *guestMemory) Absent(page uint64) bool {
	s, ok := m.Memory.(sparse)
	return ok && s.Absent(page)
}

// Original reads what a page held when it came in.
func (m *guestMemory) Original(page uint64, dst []byte) error {
	if s, ok := m.Memory.(sparse); ok {
		return s.Original(page, dst)
	}
	return fmt.Errorf("page %d didn't come in, it was there: %w", page, memtrack.ErrUnsupported)
}

// Tracker has been started; starting it again is harmless.
func (m *guestMemory) Tracker() memtrack.Tracker { return m.tracker }

// touched gives the pages brought in, in order of first touch; nil where nothing was absent.
func (m *guestMemory) touched() []uint64 {
	if m.pager == nil {
		return nil
	}
	return m.pager.Touched()
}

// lost tells when a page can't be had; the guest waits for it. A nil channel where nothing is absent.
func (m *guestMemory) lost() <-chan error {
	if m.pager == nil {
		return nil
	}
	return m.pager.Lost()
}

// close ends tracking and serving. A guest that still lives waits at the next absent page.
func (m *guestMemory) close() error {
	var trackerErr, pagerErr, backedErr error
	if m.tracker != nil {
		trackerErr = m.tracker.Stop()
	}
	if m.pager != nil {
		pagerErr = m.pager.Close()
	}
	if m.backed != nil {
		backedErr = m.backed.Close()
	}
	if err := errors.Join(trackerErr, pagerErr, backedErr); err != nil {
		return fmt.Errorf("let go of the memory of process %d: %w", m.span.PID, err)
	}
	return nil
}
