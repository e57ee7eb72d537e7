package store

import (
	"context"
	"errors"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"
)

// removeBatch is how many checkpoints one transaction removes; their children are written anew in it.
const removeBatch = 256

// RemoveCheckpoints takes checkpoints out of a history; why goes into the ledger. Their children hang on their nearest
// ancestor that is left. ErrInUse for the head, what is pinned and fork points; ErrNotFound. All go, or none.
func (s *Store) RemoveCheckpoints(ctx context.Context, vm string, numbers []int, why string) error {
	if len(numbers) > removeBatch {
		return fmt.Errorf("remove %d checkpoints of flashvm %s: at most %d at once", len(numbers), vm, removeBatch)
	}
	_, err := s.removeSome(ctx, vm, numbers, why, true)
	return err
}

// thin removes those of chosen that may still go, in as many transactions as it takes, and gives what went.
func (s *Store) thin(ctx context.Context, vm string, chosen []int) (gone []Checkpoint, err error) {
	size := removeBatch
	for len(chosen) > 0 {
		some := chosen[:min(len(chosen), size)]
		went, err := s.removeSome(ctx, vm, some, "retention", false)
		switch {
		case errors.Is(err, badger.ErrTxnTooBig) && size > 1: // long labels
			size /= 2
			continue
		case errors.Is(err, ErrNotFound): // the VM has gone
			return gone, nil
		case err != nil:
			return gone, err
		}
		gone = append(gone, went...)
		chosen = chosen[len(some):]
	}
	return gone, nil
}

// removeSome is one transaction. Not strict, it leaves what must stay.
func (s *Store) removeSome(ctx context.Context, vm string, numbers []int, why string, strict bool) (gone []Checkpoint, err error) {
	err = s.update(ctx, func(tx *badger.Txn) error {
		h, err := readTree(tx, vm)
		if err != nil {
			return err
		}
		goes := map[int]bool{}
		for _, n := range numbers {
			reason := "there is none"
			if c := h.byNumber[n]; c != nil {
				reason = h.staysFor(c)
			} else if strict {
				return fmt.Errorf("flashvm %s checkpoint %d: %w", vm, n, ErrNotFound)
			}
			if strict && reason != "" {
				return fmt.Errorf("flashvm %s checkpoint %d: %s: %w", vm, n, reason, ErrInUse)
			}
			if reason == "" && !goes[n] {
				goes[n] = true
				gone = append(gone, *h.byNumber[n])
			}
		}
		if len(gone) == 0 {
			return nil
		}
		if err := h.remove(tx, goes); err != nil {
			return err
		}
		var list []int
		for _, c := range gone {
			list = append(list, c.Number)
		}
		return s.enter(tx, vm, "removed", map[string]any{"checkpoints": list, "reason": why})
	})
	if err != nil {
		return nil, err
	}
	for _, c := range gone {
		s.garbage.add(c.NewBytes)
	}
	return gone, nil
}

// historyTree is one VM's history and what must stay of it.
type historyTree struct {
	vm       string
	record   *vmRecord
	head     int
	all      []Checkpoint
	byNumber map[int]*Checkpoint
	forked   map[int]string // by number: a VM that was forked there
}

func readTree(tx *badger.Txn, vm string) (*historyTree, error) {
	v, err := getVM(tx, vm)
	if err != nil {
		return nil, err
	}
	h := &historyTree{vm: vm, record: v, head: v.Head, byNumber: map[int]*Checkpoint{}, forked: map[int]string{}}
	err = scanHistory(tx, historyKeys(vm), func(n int, r *checkpointRecord) error {
		h.all = append(h.all, r.checkpoint(n))
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range h.all {
		h.byNumber[h.all[i].Number] = &h.all[i]
	}
	for _, key := range keysWith(tx, []byte(vmPrefix), -1) {
		child := string(key[len(vmPrefix):])
		r := &checkpointRecord{}
		err := getJSON(tx, checkpointKey(child, 0), r)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if err == nil && r.From != nil && r.From.VM == vm {
			h.forked[r.From.Number] = child
		}
	}
	return h, nil
}

// staysFor says why a checkpoint must stay; "": it needn't.
func (h *historyTree) staysFor(c *Checkpoint) string {
	switch {
	case c.Number == h.head:
		return "it is the head"
	case c.Pinned:
		return "it is pinned"
	case c.From != nil:
		return "the fork's history begins with it"
	case h.forked[c.Number] != "":
		return fmt.Sprintf("flashvm %s was forked from it", h.forked[c.Number])
	}
	return ""
}

// remove deletes and hangs the children on what is left. Those that go are the VM's own: its fork point stays.
func (h *historyTree) remove(tx *badger.Txn, goes map[int]bool) error {
	h.record.add(-len(goes))
	if err := putJSON(tx, vmKey(h.vm), h.record); err != nil {
		return err
	}
	for i := range h.all {
		c := &h.all[i]
		if goes[c.Number] {
			if err := tx.Delete(checkpointKey(h.vm, c.Number)); err != nil {
				return err
			}
			continue
		}
		parent := c.Parent
		for goes[parent] {
			parent = h.byNumber[parent].Parent
		}
		if parent == c.Parent {
			continue
		}
		c.Parent = parent
		if err := putJSON(tx, checkpointKey(h.vm, c.Number), recordOf(c)); err != nil {
			return err
		}
	}
	return nil
}
