package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// ErrUsable: the database can be opened, so there is nothing to rebuild.
var ErrUsable = errors.New("the database is usable")

// RebuiltVM is one VM that came back.
type RebuiltVM struct {
	VM          string `json:"flashvm"`
	Checkpoints int    `json:"checkpoints"`
	Head        int    `json:"head"` // -1: none
	Lost        []int  `json:"lost"` // checkpoints that were noted and aren't whole, or were never committed
}

// RebuildReport says what came back.
type RebuildReport struct {
	SetAside string      `json:"set_aside"` // where the damaged database is now; "": there was none
	Notes    int         `json:"notes"`     // that were used
	VMs      []RebuiltVM `json:"flashvms"`
	Bundles  []string    `json:"bundles"`
	Unnamed  int         `json:"unnamed_snapshots"` // in the packs, and of no name that came back: the next gc takes them
	Problems []string    `json:"problems"`
}

// kindLister is a chunk store whose packs can be searched.
type kindLister interface {
	HashesOf(ctx context.Context, kind cas.Kind) ([]cas.Hash, error)
}

// Rebuild makes the database again from the notes in the packs. The one there is must be gone or damaged (ErrUsable), and
// is set aside. The new one takes its place when it is complete, so a crash leaves all as it was.
//
// What comes back: VMs and bundles with their names, every checkpoint that is whole, its label, number and parent; the
// head of each VM's last checkpoint. As they were when the last catalogue was written: pins and exit codes set later than
// the checkpoint, heads that were moved, each VM's own rules, the end of its ledger. What doesn't: what the host knew of
// running machines, working sets, the settings and the rules for all VMs. Collecting in the background is off afterwards.
func Rebuild(ctx context.Context, c Config) (RebuildReport, error) {
	r := RebuildReport{VMs: []RebuiltVM{}, Bundles: []string{}, Problems: []string{}}
	err := rebuild(ctx, c, &r)
	if err != nil {
		return r, fmt.Errorf("rebuild database %s: %w", c.Dir, err)
	}
	return r, nil
}

func rebuild(ctx context.Context, c Config, r *RebuildReport) error {
	before, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there, err := openStore(ctx, c)
	if err == nil {
		return errors.Join(ErrUsable, there.Close())
	}
	if !errors.Is(err, ErrDatabase) {
		return err
	}
	lister, ok := c.Chunks.(kindLister)
	if !ok {
		return ErrUnsupported
	}
	fresh := c
	fresh.Dir, fresh.Anew = c.Dir+".rebuilding", true
	if err := os.RemoveAll(fresh.Dir); err != nil {
		return err
	}
	s, err := openStore(ctx, fresh)
	if err != nil {
		return err
	}
	b := rebuilder{s: s, lister: lister, r: r, whole: map[SnapshotID]error{}}
	if err := errors.Join(b.run(ctx), s.Close()); err != nil {
		return err
	}
	if len(before) == 0 { // what is there now was made by looking
		if err := os.RemoveAll(c.Dir); err != nil {
			return err
		}
	} else {
		r.SetAside = c.Dir + ".damaged-" + s.now().UTC().Format("20060102T150405")
		if err := os.Rename(c.Dir, r.SetAside); err != nil {
			return err
		}
	}
	return os.Rename(fresh.Dir, c.Dir)
}

type rebuilder struct {
	s      *Store
	lister kindLister
	r      *RebuildReport
	whole  map[SnapshotID]error // nil: it is
	trace  *tracer
	broken error // what the tracer met
}

func (b *rebuilder) run(ctx context.Context) error {
	all, last, err := b.notes(ctx)
	if err != nil {
		return err
	}
	notes, stores := manifest.NotesOf(all)
	if stores > 1 {
		b.problem("the packs have notes of %d stores; those of the one that wrote last are used", stores)
	}
	b.r.Notes = len(notes)
	if err := b.goOn(ctx, notes, last); err != nil {
		return err
	}
	names := manifest.Assemble(notes, func(h cas.Hash) ([]byte, error) { return b.s.chunks.Get(ctx, cas.Ref{Hash: h}, nil) })
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range names.Lost {
		b.problem("a VM's history can't be read; what was noted of it later is used: %v", err)
	}
	b.trace = newTracer(ctx, b.s.chunks)
	b.trace.has = b.s.chunks.Has
	b.trace.missed = func(h cas.Hash, err error) int { b.broken = fmt.Errorf("chunk %s: %w", h, err); return 0 }
	if err := b.bundles(ctx, names.Bundles); err != nil {
		return err
	}
	for _, h := range names.VMs {
		if err := b.vm(ctx, h); err != nil {
			return err
		}
	}
	if err := b.countUnnamed(ctx); err != nil {
		return err
	}
	// A pin that was lost must not cost its checkpoint.
	return b.s.SetSettings(ctx, Settings{GCOff: true})
}

func (b *rebuilder) problem(format string, args ...any) {
	b.r.Problems = append(b.r.Problems, fmt.Sprintf(format, args...))
}

// notes reads all notes there are; last is the largest sequence number.
func (b *rebuilder) notes(ctx context.Context) (notes []*manifest.Note, last uint64, err error) {
	hashes, err := b.lister.HashesOf(ctx, cas.KindNote)
	if err != nil {
		return nil, 0, err
	}
	refs := make([]cas.Ref, len(hashes))
	for i, h := range hashes {
		refs[i].Hash = h
	}
	err = b.s.chunks.GetMany(ctx, refs, func(i int, p []byte, err error) error {
		if err != nil {
			b.problem("a note can't be read: %v", err)
			return nil
		}
		if manifest.IsPiece(p) {
			return nil
		}
		n, err := manifest.DecodeNote(p)
		if err != nil {
			b.problem("chunk %s: %v", hashes[i], err)
			return nil
		}
		notes, last = append(notes, n), max(last, n.Sequence)
		return nil
	})
	return notes, last, err
}

// goOn makes the new database the one that wrote the notes.
func (b *rebuilder) goOn(ctx context.Context, notes []*manifest.Note, last uint64) error {
	if len(notes) == 0 {
		return nil
	}
	id := notes[0].Store
	err := b.s.update(ctx, func(tx *badger.Txn) error {
		if err := tx.Set([]byte(storeIDKey), id[:]); err != nil {
			return err
		}
		return tx.Set([]byte(noteBaseKey), binary.LittleEndian.AppendUint64(nil, last))
	})
	b.s.notes.mu.Lock()
	b.s.notes.store, b.s.notes.last = id, last
	b.s.notes.mu.Unlock()
	return err
}

// isWhole says what a snapshot lacks; nil: nothing.
func (b *rebuilder) isWhole(ctx context.Context, id SnapshotID) (lacks error, err error) {
	if lacks, known := b.whole[id]; known {
		return lacks, nil
	}
	b.broken = nil
	sn, lacks := b.s.Snapshot(ctx, id)
	if lacks == nil {
		for _, im := range sn.record.Images {
			found, err := b.trace.image(im)
			if err != nil {
				return nil, err
			}
			if len(found) > 0 && lacks == nil {
				if lacks = b.broken; lacks == nil { // what an earlier snapshot was found to lack
					lacks = cas.ErrNotFound
				}
				lacks = fmt.Errorf("image %s: %w", im.Name, lacks)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.whole[id] = lacks
	return lacks, nil
}

func (b *rebuilder) bundles(ctx context.Context, all []manifest.NamedBundle) error {
	var whole []manifest.NamedBundle
	for _, n := range all {
		lacks, err := b.isWhole(ctx, n.Snapshot)
		if err != nil {
			return err
		}
		if lacks != nil {
			b.problem("bundle %s isn't whole and stays away: %v", n.Name, lacks)
			continue
		}
		whole = append(whole, n)
		b.r.Bundles = append(b.r.Bundles, n.Name)
	}
	for some := range slices.Chunk(whole, importBatch) {
		err := b.s.update(ctx, func(tx *badger.Txn) error {
			for _, n := range some {
				if err := putJSON(tx, bundleKey(n.Name), bundleRecord{Snapshot: hexHash(n.Snapshot), Created: n.Created}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuilder) vm(ctx context.Context, h *History) error {
	var failed error
	gone := h.Keep(func(c *manifest.NamedSnapshot) bool {
		lacks, err := b.isWhole(ctx, c.Snapshot)
		failed = errors.Join(failed, err)
		if lacks != nil {
			b.problem("%s@%d isn't whole and stays away: %v", h.VM, c.Number, lacks)
		}
		return lacks == nil
	})
	if failed != nil {
		return failed
	}
	if !h.Bundle.IsZero() {
		lacks, err := b.isWhole(ctx, h.Bundle)
		if err != nil {
			return err
		}
		if lacks != nil {
			b.problem("what %s boots from isn't whole; its checkpoints are: %v", h.VM, lacks)
			h.Bundle = cas.Hash{}
		}
	}
	im := importer{s: b.s, vm: h.VM, h: *h}
	if err := im.run(ctx, false); err != nil {
		if ctx.Err() != nil {
			return err
		}
		b.problem("%s: %v", h.VM, err)
		return nil
	}
	out := RebuiltVM{VM: h.VM, Checkpoints: len(h.Checkpoints), Head: h.Head, Lost: []int{}}
	for _, c := range gone {
		out.Lost = append(out.Lost, c.Number)
	}
	b.r.VMs = append(b.r.VMs, out)
	return b.s.AppendLedger(ctx, h.VM, "rebuilt", map[string]any{"at": b.s.now().UTC().Round(time.Second), "lost": out.Lost})
}

// countUnnamed counts what is there and came back under no name.
func (b *rebuilder) countUnnamed(ctx context.Context) error {
	hashes, err := b.lister.HashesOf(ctx, cas.KindSnapshot)
	if err != nil {
		return err
	}
	names, err := b.s.names(ctx)
	for _, h := range hashes {
		if len(names[h]) == 0 {
			b.r.Unnamed++
		}
	}
	return err
}
