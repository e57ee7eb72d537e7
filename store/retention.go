package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	badger "github.com/dgraph-io/badger/v4"
)

// Retention says which checkpoints of a VM stay. The zero value keeps all.
//
// A checkpoint stays if any of the keep rules wants it; of the others those older than OlderThanSeconds go. Without a
// keep rule all of that age go. At last, while what is left has added more than MaxBytes to the store, the oldest goes.
// Never goes: the head, what is pinned, a fork point of a VM that exists, and where a fork's own history begins.
type Retention struct {
	KeepLast         int   `json:"keep_last,omitempty"`          // the newest n
	KeepHourly       int   `json:"keep_hourly,omitempty"`        // the newest of each of the last n hours that have one
	KeepDaily        int   `json:"keep_daily,omitempty"`         // … of the last n days (UTC) that have one
	OlderThanSeconds int64 `json:"older_than_seconds,omitempty"` // nothing younger goes by the rules above
	MaxBytes         int64 `json:"max_bytes,omitempty"`          // of all new_bytes of one VM's checkpoints; 0: no bound
}

// IsZero tells whether r keeps everything.
func (r Retention) IsZero() bool { return r == Retention{} }

// Check refuses what makes no sense.
func (r Retention) Check() error {
	if r.KeepLast < 0 || r.KeepHourly < 0 || r.KeepDaily < 0 || r.OlderThanSeconds < 0 || r.MaxBytes < 0 {
		return fmt.Errorf("a retention of %+v: nothing in it may be negative", r)
	}
	return nil
}

// chooses gives the checkpoints that go, ascending by number. history is one VM's, stays tells what never goes.
func (r Retention) chooses(history []Checkpoint, now time.Time, stays func(*Checkpoint) bool) []Checkpoint {
	if r.IsZero() {
		return nil
	}
	newest := slices.Clone(history)
	slices.SortFunc(newest, func(a, b Checkpoint) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Number, a.Number))
	})
	hours, days := thinning{left: r.KeepHourly, width: time.Hour}, thinning{left: r.KeepDaily, width: 24 * time.Hour}
	age := time.Duration(r.OlderThanSeconds) * time.Second
	byRule := r.KeepLast+r.KeepHourly+r.KeepDaily > 0 || age > 0
	goes := map[int]bool{}
	bytes := int64(0)
	for i := range newest {
		c := &newest[i]
		hourly, daily := hours.wants(c.Created), days.wants(c.Created) // both count, whoever else keeps it
		wanted := i < r.KeepLast || hourly || daily || now.Sub(c.Created) < age
		if goes[c.Number] = byRule && !wanted && !stays(c); !goes[c.Number] {
			bytes += c.NewBytes
		}
	}
	if r.MaxBytes > 0 {
		for i := len(newest) - 1; i >= 0 && bytes > r.MaxBytes; i-- {
			if c := &newest[i]; !goes[c.Number] && !stays(c) {
				goes[c.Number] = true
				bytes -= c.NewBytes
			}
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(history), func(c Checkpoint) bool { return !goes[c.Number] })
	slices.SortFunc(chosen, func(a, b Checkpoint) int { return cmp.Compare(a.Number, b.Number) })
	return chosen
}

// thinning wants the first of each span of time it is asked about, newest first, as long as any are left.
type thinning struct {
	left  int
	width time.Duration
	last  time.Time
}

func (t *thinning) wants(at time.Time) bool {
	span := at.UTC().Truncate(t.width)
	if t.left == 0 || span.Equal(t.last) {
		return false
	}
	t.left--
	t.last = span
	return true
}

// SetRetention keeps the rules of one VM, or, for vm "", of all that have none of their own. nil takes them away.
func (s *Store) SetRetention(ctx context.Context, vm string, r *Retention) error {
	if r != nil {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return s.update(ctx, func(tx *badger.Txn) error {
		if vm != "" {
			if _, err := getVM(tx, vm); err != nil {
				return err
			}
		}
		if r == nil {
			return tx.Delete(retentionKey(vm))
		}
		return putJSON(tx, retentionKey(vm), r)
	})
}

// Retentions gives the rules that were set, by VM; "" is for all others.
func (s *Store) Retentions(ctx context.Context) (map[string]Retention, error) {
	all := map[string]Retention{}
	err := s.view(ctx, func(tx *badger.Txn) error {
		return scan(tx, []byte(retentionPrefix), func(key, value []byte) error {
			var r Retention
			err := decodeJSON(key, value, &r)
			all[string(key[len(retentionPrefix):])] = r
			return err
		})
	})
	return all, err
}

// Settings is how a store is kept up in the background. The zero value: as the program thinks best.
type Settings struct {
	GCOff          bool `json:"gc_off,omitempty"`
	GCEveryMinutes int  `json:"gc_every_minutes,omitempty"` // at most so often; 0: the program's choice

	BudgetBytes int64 `json:"budget_bytes,omitempty"` // of the packs, see budget.go; 0: as much as the disk has
}

// Settings gives what was set last.
func (s *Store) Settings(ctx context.Context) (set Settings, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		v, err := get(tx, []byte(settingsKey))
		if err != nil || v == nil {
			return err
		}
		return decodeJSON([]byte(settingsKey), v, &set)
	})
	return set, err
}

// SetSettings replaces them; they are in effect at once.
func (s *Store) SetSettings(ctx context.Context, set Settings) error {
	if err := set.Check(); err != nil {
		return err
	}
	err := s.update(ctx, func(tx *badger.Txn) error { return putJSON(tx, []byte(settingsKey), set) })
	if err == nil {
		s.applySettings(set)
	}
	return err
}
