package store

import (
	"context"
	"fmt"

	"flash/cas"
)

// A byte budget bounds the packs: checkpoints and bundles are refused before they fill it. The last part of it, the
// reserve, is for what must not fail if that can be helped: the present of a VM that is stopped or rewound. Collections
// write what they keep beside it, so a full store can always be made smaller.

// ErrBudget: the packs are as large as the store's budget lets them be. It is a cas.ErrNoSpace; nothing was lost.
var ErrBudget error = budgetError{}

type budgetError struct{}

func (budgetError) Error() string        { return "the store's budget is used up" }
func (budgetError) Is(target error) bool { return target == cas.ErrNoSpace }

// Purse is how much of the budget a transaction may use.
type Purse int

const (
	Ordinary  Purse = iota // begins only while the reserve is untouched; may use half of it to end
	Reserve                // all of the budget
	Overdraft              // more: what is lost if it isn't stored
)

const (
	// MinBudgetBytes is the least budget: below it hardly a VM fits.
	MinBudgetBytes = 16 << 20

	reserveShare    = 8 // of the budget …
	maxReserveBytes = 1 << 30
)

// Usage is how much of its budget the store uses.
type Usage struct {
	PackBytes int64 `json:"pack_bytes"`
	Budget    int64 `json:"budget_bytes"` // 0: none was set
	Limit     int64 `json:"limit_bytes"`  // above it no checkpoint begins; the rest is the reserve
}

// Pressing tells whether the room before the limit is nearly used up: it is time to collect.
func (u Usage) Pressing() bool { return u.Budget > 0 && u.PackBytes >= u.Limit-u.Limit/8 }

// packMeter is a chunk store that can tell its size.
type packMeter interface{ PackBytes() int64 }

// Usage tells it now.
func (s *Store) Usage() Usage {
	u := Usage{Budget: s.budget.Load()}
	u.Limit = u.Budget - min(u.Budget/reserveShare, maxReserveBytes)
	if m, ok := s.chunks.(packMeter); ok {
		u.PackBytes = m.PackBytes()
	}
	return u
}

// CheckBudget says whether a transaction of that purse may begin. ErrBudget.
func (s *Store) CheckBudget(p Purse) error { return s.checkBudget(p, false) }

// checkBudget is asked before a transaction begins, and then before each batch it puts: an ordinary one that has begun
// may use half of the reserve, for it is better ended.
func (s *Store) checkBudget(p Purse, begun bool) error {
	if s.budget.Load() == 0 || p == Overdraft {
		return nil
	}
	u := s.Usage()
	limit := u.Limit
	switch {
	case p == Reserve:
		limit = u.Budget - batchSlots*cas.SlotBytes // so that a batch fits
	case begun:
		limit += (u.Budget - u.Limit) / 2
	}
	if u.PackBytes < limit {
		return nil
	}
	if p == Reserve {
		return fmt.Errorf("the packs have %d MiB of %d MiB: %w", u.PackBytes>>20, u.Budget>>20, ErrBudget)
	}
	return fmt.Errorf("the packs have %d MiB of %d MiB, the last of which are for VMs that are stopped or rewound: %w", u.PackBytes>>20, u.Budget>>20, ErrBudget)
}

// MayUse says how much of the budget the transaction may use; without it, it is an ordinary one. Before the first put.
func (t *Txn) MayUse(p Purse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purse = p
}

func (t *Txn) checkBudget() error {
	t.mu.Lock()
	purse, begun := t.purse, len(t.images) > 0 || t.newBytes > 0
	t.mu.Unlock()
	return t.s.checkBudget(purse, begun)
}

// applySettings puts saved settings into effect.
func (s *Store) applySettings(set Settings) { s.budget.Store(set.BudgetBytes) }

// Check refuses settings that make no sense.
func (set Settings) Check() error {
	if set.GCEveryMinutes < 0 || set.BudgetBytes < 0 {
		return fmt.Errorf("settings of %+v: nothing in them may be negative", set)
	}
	if set.BudgetBytes > 0 && set.BudgetBytes < MinBudgetBytes {
		return fmt.Errorf("a budget of %d bytes, at least %d MiB", set.BudgetBytes, MinBudgetBytes>>20)
	}
	return nil
}

// loadSettings is for Open.
func (s *Store) loadSettings(ctx context.Context) error {
	set, err := s.Settings(ctx)
	if err == nil {
		s.applySettings(set)
	}
	return err
}
