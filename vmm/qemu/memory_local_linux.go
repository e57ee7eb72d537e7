package qemu

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"flash/memtrack"
	"flash/memtrack/pagemap"
	"flash/memtrack/uffd"
)

type memorySupport struct {
	lazy, shared bool
	tracker      string
	reasons      map[string]string
}

func probeMemory(ctx context.Context) memorySupport {
	return memorySupport{lazy: true, shared: true, tracker: "pagemap-scan"}
}

type bases struct {
	mu  sync.Mutex
	all map[string]*sharedBase
}
type sharedBase struct {
	key  string
	all  *bases
	b    *uffd.Base
	refs int
}

func newBases() *bases { return &bases{all: map[string]*sharedBase{}} }
func (b *bases) get(key string, src memtrack.Source) (*sharedBase, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.all[key]; s != nil {
		s.refs++
		return s, nil
	}
	base, err := uffd.NewBase(src)
	if err != nil {
		return nil, err
	}
	s := &sharedBase{key, b, base, 1}
	b.all[key] = s
	return s, nil
}
func (s *sharedBase) prefetch(ctx context.Context, pages []uint64) error {
	return s.b.Prefetch(ctx, pages)
}
func (s *sharedBase) release() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.refs--; s.refs == 0 {
		delete(s.all.all, s.key)
		s.b.Close()
	}
}

type guestMemory struct {
	*memtrack.Process
	m       memtrack.Memory
	pager   *uffd.Pager
	tracker memtrack.Tracker
}

func openMemory(ctx context.Context, pid int, bytes uint64, base *sharedBase, s memorySupport) (*guestMemory, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	span := memtrack.Span{PID: pid}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memory-backend-memfd") {
			fmt.Sscanf(line, "%x-%x", &span.Start, &span.End)
		}
	}
	m := &guestMemory{Process: memtrack.NewProcess(span), tracker: pagemap.NewScan()}
	m.m = m.Process
	if base != nil {
		if m.pager, err = uffd.Open(ctx, span, base.b, uffd.Options{Protect: true}); err != nil {
			return nil, err
		}
		m.m = m.pager.Memory()
	} else if err := uffd.Protect(ctx, span); err != nil {
		return nil, err
	}
	if err := m.tracker.Start(m.m); err != nil {
		return nil, err
	}
	return m, nil
}
func (m *guestMemory) Tracker() memtrack.Tracker { return m.tracker }
func (m *guestMemory) View(ctx context.Context, pages []uint64, dst []byte) error {
	return m.m.View(ctx, pages, dst)
}
func (m *guestMemory) touched() []uint64 { return m.pager.Touched() }
func (m *guestMemory) lost() <-chan error {
	if m.pager == nil {
		return nil
	}
	return m.pager.Lost()
}
func (m *guestMemory) close() error {
	m.tracker.Stop()
	if m.pager != nil {
		return m.pager.Close()
	}
	return nil
}
