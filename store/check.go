package store

import (
	"context"
	"errors"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
)

// Severity of a finding.
const (
	Harmless = "harmless" // no name reaches it, or there is another good copy: nothing is lost
	Damage   = "damage"   // a checkpoint, a bundle or a record is not what it was
)

// Finding is one thing that is wrong, with the evidence and what it touches.
type Finding struct {
	Severity string   `json:"severity"`
	Kind     string   `json:"kind"` // pack, chunk, missing, note, history, ledger, database
	Pack     string   `json:"pack,omitempty"`
	Offset   int64    `json:"offset,omitempty"`
	Hash     cas.Hash `json:"hash,omitzero"`
	Reason   string   `json:"reason"`
	Touches  []Name   `json:"touches"`
}

// CheckOptions says how much is read. The structure is always checked whole.
type CheckOptions struct {
	Read     float64 // of the packs' bytes, 0 to 1; 0: only what the structure needs
	Repair   bool    // damaged packs are replaced by copies of what is good in them; reads all
	Progress func(step string, done, total int64)
}

// CheckReport says what was looked at and found.
type CheckReport struct {
	Read      cas.VerifyStats  `json:"read"`
	Snapshots int              `json:"snapshots"` // walked whole
	Nodes     int              `json:"nodes"`
	Chunks    int64            `json:"chunks"`  // data chunks, whose presence was asked for
	Records   int              `json:"records"` // VMs, checkpoints, ledger entries
	Findings  []Finding        `json:"findings"`
	Worst     string           `json:"worst"` // "" when there is none
	Repair    *cas.RepairStats `json:"repair,omitempty"`
}

// Check looks for damage: the packs' bytes, that every named snapshot is whole, the histories and the ledgers. The error
// is about the check itself; ErrNothingChecked when there was nothing to read, which is no success.
func (s *Store) Check(ctx context.Context, o CheckOptions) (CheckReport, error) {
	c := checker{s: s, o: o, in: newInspector(s.chunks)}
	if c.o.Progress == nil {
		c.o.Progress = func(string, int64, int64) {}
	}
	err := c.run(ctx)
	c.r.Snapshots, c.r.Nodes, c.r.Chunks, c.r.Findings = c.in.r.Snapshots, c.in.r.Nodes, c.in.r.Chunks, c.in.r.Findings
	for i := range c.r.Findings {
		f := &c.r.Findings[i]
		if f.Touches == nil {
			f.Touches = []Name{}
		}
		if f.Severity == Damage || c.r.Worst == "" {
			c.r.Worst = f.Severity
		}
	}
	if err != nil {
		return c.r, fmt.Errorf("check: %w", err)
	}
	return c.r, nil
}

type checker struct {
	s  *Store
	o  CheckOptions
	r  CheckReport
	in *inspector // has the findings until the end
}

func (c *checker) run(ctx context.Context) error {
	done, err := c.s.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := c.packs(ctx); err != nil {
		return err
	}
	if err := c.database(ctx); err != nil {
		return err
	}
	if err := c.notes(ctx); err != nil {
		return err
	}
	names, err := c.s.names(ctx)
	if err != nil {
		return err
	}
	if err := c.in.snapshots(ctx, names, c.o.Progress); err != nil {
		return err
	}
	if c.in.r.Snapshots == 0 && c.r.Read.Records == 0 && len(c.in.r.Findings) == 0 {
		return fmt.Errorf("the store holds no snapshot and no chunk: %w", ErrNothingChecked)
	}
	if c.o.Read > 0 && c.r.Read.Records == 0 && len(c.in.r.Findings) == 0 {
		return fmt.Errorf("no pack was read: %w", ErrNothingChecked)
	}
	return nil
}

// packs reads bytes, and repairs.
func (c *checker) packs(ctx context.Context) error {
	if c.o.Repair {
		r, ok := c.s.chunks.(repairer)
		if !ok {
			return fmt.Errorf("repair: %w", ErrUnsupported)
		}
		c.o.Progress("repair", 0, 0)
		stats, err := r.Repair(ctx, c.in.damage)
		c.r.Repair = &stats
		if err != nil {
			return err
		}
		c.o.Read = 1
		// Nodes that were read before may be gone now: what is walked below is what is there.
		c.s.nodes.cache.clear()
	}
	if c.o.Read <= 0 {
		return nil
	}
	v, ok := c.s.chunks.(verifier)
	if !ok {
		return fmt.Errorf("read the packs: %w", ErrUnsupported)
	}
	c.o.Progress("read packs", 0, 0)
	var err error
	c.r.Read, err = v.Verify(ctx, c.o.Read, c.in.damage)
	return err
}

// database checks Badger's own checksums, and what our records say of each other.
func (c *checker) database(ctx context.Context) error {
	c.o.Progress("read the database", 0, 0)
	if err := c.s.verifyDatabase(); err != nil {
		c.in.found(Finding{Severity: Damage, Kind: "database", Reason: err.Error()})
	}
	vms, err := c.s.VMs(ctx)
	if err != nil {
		return err
	}
	for _, v := range vms {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.r.Records++
		var h *historyTree
		err := c.s.view(ctx, func(tx *badger.Txn) (err error) { h, err = readTree(tx, v.ID); return err })
		if errors.Is(err, ErrNotFound) { // removed since
			continue
		}
		if err != nil {
			c.in.found(Finding{Severity: Damage, Kind: "history", Reason: err.Error(), Touches: []Name{{VM: v.ID, Number: -1}}})
			continue
		}
		c.history(h)
		entries, err := c.s.Ledger(ctx, v.ID)
		if err != nil && !errors.Is(err, ErrNotFound) {
			c.in.found(Finding{Severity: Damage, Kind: "ledger", Reason: err.Error(), Touches: []Name{{VM: v.ID, Number: -1}}})
		}
		c.r.Records += len(entries)
	}
	return nil
}

// notes checks that what would bring the names back is there, and, repairing, writes it anew.
func (c *checker) notes(ctx context.Context) error {
	roots := &rootSet{}
	if err := c.s.view(ctx, func(tx *badger.Txn) error { return noteRoots(tx, roots) }); err != nil {
		c.in.found(Finding{Severity: Damage, Kind: "database", Reason: err.Error()})
		return nil
	}
	have, err := c.s.chunks.Has(ctx, roots.plain)
	if err != nil {
		return err
	}
	lacks := 0
	for i, h := range roots.plain {
		if !have[i] {
			lacks++
			c.in.found(Finding{Severity: Harmless, Kind: "note", Hash: h, Reason: "it isn't there: a lost database would not come back whole"})
		}
	}
	if lacks > 0 && c.o.Repair {
		return c.s.writeCatalogue(ctx)
	}
	return nil
}

// history checks that a tree is one.
func (c *checker) history(h *historyTree) {
	wrong := func(n int, format string, args ...any) {
		c.in.found(Finding{Severity: Damage, Kind: "history", Reason: fmt.Sprintf(format, args...), Touches: []Name{{VM: h.vm, Number: n}}})
	}
	if h.head >= 0 && h.byNumber[h.head] == nil {
		wrong(h.head, "the head of %s is checkpoint %d, which isn't there", h.vm, h.head)
	}
	own := 0
	for _, p := range h.all {
		if p.From == nil {
			own++
		}
	}
	if own != h.record.count() {
		wrong(-1, "%s has %d checkpoints, its record counts %d", h.vm, own, h.record.count())
	}
	for _, p := range h.all {
		c.r.Records++
		switch {
		case p.Parent >= p.Number:
			wrong(p.Number, "checkpoint %d of %s descends from the later %d", p.Number, h.vm, p.Parent)
		case p.Parent >= 0 && h.byNumber[p.Parent] == nil:
			wrong(p.Number, "checkpoint %d of %s descends from %d, which isn't there", p.Number, h.vm, p.Parent)
		}
	}
}

// verifyDatabase reads every block of Badger's tables.
func (s *Store) verifyDatabase() error {
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.db.VerifyChecksum()
}
