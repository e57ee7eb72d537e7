// Package tiered makes one store of two tiers: what isn't near is read from far.
//
// Terms: near is a whole chunk store, on this host. A far is something that has chunks and is slow and sometimes silent:
// there may be none, or several, each under a name.
//
// Invariants:
//
//   - Writes are near's alone, and near alone decides what is absent: a chunk that only a far has is stored when it is put.
//   - A chunk is lost only when near and every far say so. When one of them couldn't be asked, the error is that one's, which
//     isn't permanent: asking again may help.
//   - A chunk that is damaged near is served by a far that has it. Near stays as it is: repairs are explicit.
//   - Without a far, a call is near's with an atomic load before it.
//
// Lock order: there is one mutex, for changing the list of fars; it is never held across a call of a tier.
package tiered

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"flash/cas"
)

// Near is the tier on this host: the store, and what keeps it up. A Store has all of it as it is, so that whoever looks for
// upkeep in a store finds it here too.
type Near interface {
	cas.Store
	BeginSweep(ctx context.Context) (cas.Sweep, error)
	Verify(ctx context.Context, fraction float64, report func(cas.Damage)) (cas.VerifyStats, error)
	Repair(ctx context.Context, report func(cas.Damage)) (cas.RepairStats, error)
	DumpPack(ctx context.Context, name string) (cas.PackDump, error)
	PackNames() []string
	Seal(ctx context.Context) error
	PackBytes() int64 // of all packs; the budget is held against it
}

// Far is a tier to read from.
type Far interface {
	// Has tells what it has as far as it knows, without asking anybody.
	Has(hs []cas.Hash) []bool
	// Get and GetMany are as cas.Store's. An error that is permanent means that the chunk is lost there.
	Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error)
	GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error
}

// Event is something worth telling a person, or counting.
type Event struct {
	Far   string   // which one
	Chunk cas.Hash // that was asked for
	// Near is why near didn't serve it: a *cas.CorruptError. It is served all the same: from Far.
	Near error
}

// Store is near, and the fars behind it. All methods are safe for concurrent use.
type Store struct {
	Near
	onEvent  func(Event)
	fars     atomic.Pointer[[]*attached] // nil: none
	mu       sync.Mutex                  // serialises changes of fars
	counters counters
}

// attached is a far under its name.
type attached struct {
	Far
	name string
}

var _ cas.Store = (*Store)(nil)

// New makes a store of near alone; SetFar adds fars. Close closes near.
func New(near Near) *Store { return &Store{Near: near, onEvent: func(Event) {}} }

// OnEvent has f told of chunks that a far serves because they are damaged near, from the goroutine that reads.
//
// Precondition: nothing reads yet.
func (s *Store) OnEvent(f func(Event)) { s.onEvent = f }

// SetFar attaches a far, or replaces the one of that name. They are asked in the order in which they were attached.
func (s *Store) SetFar(name string, f Far) {
	s.change(func(fars []*attached) []*attached {
		a := &attached{f, name}
		if i := slices.IndexFunc(fars, func(f *attached) bool { return f.name == name }); i >= 0 {
			fars[i] = a
			return fars
		}
		return append(fars, a)
	})
}

// RemoveFar detaches one. Calls that run may still use it. None of that name is no error.
func (s *Store) RemoveFar(name string) {
	s.change(func(fars []*attached) []*attached {
		return slices.DeleteFunc(fars, func(f *attached) bool { return f.name == name })
	})
}

func (s *Store) change(f func(copied []*attached) []*attached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fars := f(slices.Clone(s.attached())); len(fars) > 0 {
		s.fars.Store(&fars)
	} else {
		s.fars.Store(nil)
	}
}

func (s *Store) attached() []*attached {
	if fars := s.fars.Load(); fars != nil {
		return *fars
	}
	return nil
}

// Has tells which are present near or, as far as is known here, far.
func (s *Store) Has(ctx context.Context, hs []cas.Hash) ([]bool, error) {
	present, err := s.Near.Has(ctx, hs)
	if err != nil {
		return nil, err
	}
	for _, f := range s.attached() {
		var absent []int
		var names []cas.Hash
		for i, p := range present {
			if !p {
				absent, names = append(absent, i), append(names, hs[i])
			}
		}
		if len(absent) == 0 {
			break
		}
		for j, p := range f.Has(names) {
			present[absent[j]] = p
		}
	}
	return present, nil
}

// String names the fars, for logs.
func (s *Store) String() string {
	var names []string
	for _, f := range s.attached() {
		names = append(names, f.name)
	}
	return fmt.Sprintf("near and %q", names)
}
