package store

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
)

// What upkeep asks of the chunk store beyond cas.Store. A store that lacks one of them can't be kept up that way, and
// says so with ErrUnsupported.
type (
	sweeper interface {
		BeginSweep(ctx context.Context) (cas.Sweep, error)
	}
	verifier interface {
		Verify(ctx context.Context, fraction float64, report func(cas.Damage)) (cas.VerifyStats, error)
	}
	repairer interface {
		Repair(ctx context.Context, report func(cas.Damage)) (cas.RepairStats, error)
	}
	dumper interface {
		DumpPack(ctx context.Context, name string) (cas.PackDump, error)
		PackNames() []string
	}
)

var (
	// ErrUnsupported: the chunk store has no such upkeep.
	ErrUnsupported = errors.New("the chunk store can't do that")
	// ErrInUse: a checkpoint that must stay: a head, a pinned one, a fork point.
	ErrInUse = errors.New("the checkpoint is in use")
	// ErrNothingChecked: a check that read nothing proves nothing.
	ErrNothingChecked = errors.New("nothing was checked")
)

// takeTurn waits for the one turn there is: gc, check and repair don't run beside each other, for each sees what
// another moves.
func (s *Store) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another gc or check is still running: %w", ctx.Err())
	}
}

// Hold makes a snapshot a root of gc until release is called, whatever happens to the names it has; calling release again
// is harmless. The snapshot must be a root when Hold is called, or be checked to be one afterwards.
func (s *Store) Hold(id SnapshotID) (release func()) { return s.pin(id) }

// DumpPack reads a pack record by record. ErrNotFound, ErrUnsupported.
func (s *Store) DumpPack(ctx context.Context, name string) (cas.PackDump, error) {
	d, ok := s.chunks.(dumper)
	if !ok {
		return cas.PackDump{}, ErrUnsupported
	}
	dump, err := d.DumpPack(ctx, name)
	if errors.Is(err, cas.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return dump, err
}

// PackNames lists the packs. ErrUnsupported.
func (s *Store) PackNames() ([]string, error) {
	d, ok := s.chunks.(dumper)
	if !ok {
		return nil, ErrUnsupported
	}
	return d.PackNames(), nil
}
