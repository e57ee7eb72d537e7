package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"flash/memtrack"
	"flash/memtrack/uffd"
)

// bases keeps the memory that machines of one snapshot share, as long as one of them lives.
//
// Lock order: bases.mu → liveSource.mu; neither is held while a source reads.
type bases struct {
	mu    sync.Mutex // guards the rest
	byKey map[string]*keyedBase
}

// keyedBase is the shared memory of one key and its holders.
type keyedBase struct {
	key     string
	src     *liveSource
	base    *uffd.Base
	holders int
}

// sharedBase is one machine's hold on shared memory.
type sharedBase struct {
	owner *bases
	keyed *keyedBase
	src   *heldSource // the one it came with
	once  sync.Once

	mu     sync.Mutex // guards the rest
	loaded bool       // the machine has all its memory; nothing needs to be brought in
}

func newBases() *bases { return &bases{byKey: map[string]*keyedBase{}} }

// get takes hold of the memory of a key, made from src if nobody else has it. The key "" is never shared. src must stay
// readable until release.
func (b *bases) get(key string, src memtrack.Source) (*sharedBase, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.byKey[key]
	if key == "" || k == nil {
		k = &keyedBase{key: key, src: &liveSource{slots: src.Slots()}}
		base, err := uffd.NewBase(k.src)
		if err != nil {
			return nil, err
		}
		k.base = base
		if key != "" {
			b.byKey[key] = k
		}
	}
	if has, wants := k.base.Pages(), src.Slots(); has != wants {
		return nil, fmt.Errorf("memory %q has %d pages, the machine's snapshot %d", key, has, wants)
	}
	k.holders++
	return &sharedBase{owner: b, keyed: k, src: k.src.add(src)}, nil
}

// release lets go; the memory ends with its last holder, machines that are attached included. Ending twice is harmless.
func (s *sharedBase) release() {
	s.once.Do(func() {
		b, k := s.owner, s.keyed
		k.src.remove(s.src) // may wait for a read
		b.mu.Lock()
		defer b.mu.Unlock()
		if k.holders--; k.holders > 0 {
			return
		}
		if b.byKey[k.key] == k {
			delete(b.byKey, k.key)
		}
		_ = k.base.Close() // closes a memfd of ours, which has nothing to report
	})
}

// prefetch brings pages in, most urgent first.
func (s *sharedBase) prefetch(ctx context.Context, pages []uint64) error {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	return s.keyed.base.Prefetch(ctx, pages)
}

func (s *sharedBase) attach(ctx context.Context, span memtrack.Span, o uffd.Options) (*uffd.Pager, error) {
	return uffd.Open(ctx, span, s.keyed.base, o)
}

// liveSource reads from the source of any machine that is still there: each machine keeps its own open only as long as it
// lives, and they all read the same snapshot. In-flight reads end before a source is removed.
type liveSource struct {
	slots uint64

	mu      sync.Mutex // guards the rest
	sources []*heldSource
}

type heldSource struct {
	src   memtrack.Source
	inUse sync.WaitGroup
}

var errNoSource = errors.New("no machine of this snapshot holds it open any more")

func (l *liveSource) add(src memtrack.Source) *heldSource {
	h := &heldSource{src: src}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources = append(l.sources, h)
	return h
}

// remove returns when nobody reads from h any more.
func (l *liveSource) remove(h *heldSource) {
	l.mu.Lock()
	l.sources = slices.DeleteFunc(l.sources, func(other *heldSource) bool { return other == h })
	l.mu.Unlock()
	h.inUse.Wait()
}

func (l *liveSource) use(read func(src memtrack.Source) error) error {
	l.mu.Lock()
	if len(l.sources) == 0 {
		l.mu.Unlock()
		return errNoSource
	}
	h := l.sources[0]
	h.inUse.Add(1)
	l.mu.Unlock()
	defer h.inUse.Done()
	return read(h.src)
}

func (l *liveSource) Slots() uint64 { return l.slots }

func (l *liveSource) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	return l.use(func(src memtrack.Source) error { return src.ReadSlot(ctx, slot, dst) })
}

func (l *liveSource) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	return l.use(func(src memtrack.Source) error { return src.ReadSlots(ctx, slots, each) })
}

func (l *liveSource) IsZero(ctx context.Context, slot uint64) (zero bool, err error) {
	err = l.use(func(src memtrack.Source) (err error) {
		zero, err = src.IsZero(ctx, slot)
		return err
	})
	return zero, err
}
