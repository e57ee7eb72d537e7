package manifest

import (
	"fmt"
	"time"
	"unicode/utf8"

	"flash/cas"
)

const (
	MaxVMNameBytes  = 128
	MaxSpecBytes    = 512 << 10
	MaxLabelBytes   = 64 << 10
	MaxLedgerKind   = 64
	MaxLedgerData   = 512 << 10
	MaxHistoryBytes = 1 << 30

	// NoCheckpoint is the head of a VM that has none, and the parent of a checkpoint that descends from none.
	NoCheckpoint = -1

	maxNumber = 1<<32 - 2 // one less than fits, so that number+1 does too
)

// History is all that is known of a VM beside the chunks: enough to have it again where its snapshots are.
// What the machine is doing right now isn't in it.
type History struct {
	VM          string
	Created     time.Time // UTC
	Bundle      cas.Hash  // the snapshot it first booted from; zero: none
	Head        int       // NoCheckpoint: none
	Next        int       // the number the next checkpoint gets
	Spec        []byte    // the host's own JSON, opaque here
	Retention   []byte    // JSON of the rules it has of its own; empty: none
	Checkpoints []NamedSnapshot
	Ledger      []LedgerEntry // consecutive; the first needn't be number 1, for the beginning may have been cut off
}

// NamedSnapshot is one checkpoint of a history.
type NamedSnapshot struct {
	Number   int
	Parent   int // NoCheckpoint: none; else smaller than Number
	Snapshot cas.Hash
	Created  time.Time // UTC
	Label    string
	ExitCode *int
	Pinned   bool
	NewBytes int64

	FromVM     string // of a fork's checkpoint 0: what it was forked from; "": it is none
	FromNumber int
}

// Roots gives the snapshots the history names, each once: those of the checkpoints and the bundle's.
func (h *History) Roots() []cas.Hash {
	var all []cas.Hash
	seen := map[cas.Hash]bool{{}: true}
	add := func(id cas.Hash) {
		if !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	add(h.Bundle)
	for i := range h.Checkpoints {
		add(h.Checkpoints[i].Snapshot)
	}
	return all
}

// check is what both Append and Decode refuse.
func (h *History) check() error {
	switch {
	case !isName(h.VM):
		return fmt.Errorf("a VM's name of %d bytes", len(h.VM))
	case !isTime(h.Created):
		return fmt.Errorf("created at %v", h.Created)
	case h.Next < 0 || h.Next > maxNumber || h.Head < NoCheckpoint || h.Head >= h.Next:
		return fmt.Errorf("head %d, next %d", h.Head, h.Next)
	case len(h.Spec) > MaxSpecBytes || len(h.Retention) > MaxSpecBytes:
		return fmt.Errorf("a spec of %d bytes and rules of %d", len(h.Spec), len(h.Retention))
	}
	last := NoCheckpoint
	for i := range h.Checkpoints {
		c := &h.Checkpoints[i]
		if c.Number <= last || c.Number >= h.Next {
			return fmt.Errorf("checkpoint %d after %d, next is %d", c.Number, last, h.Next)
		}
		last = c.Number
		if err := c.check(); err != nil {
			return fmt.Errorf("checkpoint %d: %w", c.Number, err)
		}
	}
	return h.checkLedger()
}

func (c *NamedSnapshot) check() error {
	switch {
	case c.Parent < NoCheckpoint || c.Parent >= c.Number:
		return fmt.Errorf("its parent is %d", c.Parent)
	case c.Snapshot.IsZero():
		return fmt.Errorf("it names no snapshot")
	case !isTime(c.Created):
		return fmt.Errorf("created at %v", c.Created)
	case len(c.Label) > MaxLabelBytes:
		return fmt.Errorf("a label of %d bytes", len(c.Label))
	case c.ExitCode != nil && int(int32(*c.ExitCode)) != *c.ExitCode:
		return fmt.Errorf("exit code %d", *c.ExitCode)
	case c.NewBytes < 0:
		return fmt.Errorf("%d new bytes", c.NewBytes)
	case c.FromVM == "" && c.FromNumber != 0, c.FromVM != "" && !isName(c.FromVM), c.FromNumber < 0 || c.FromNumber > maxNumber:
		return fmt.Errorf("forked from a name of %d bytes, checkpoint %d", len(c.FromVM), c.FromNumber)
	}
	return nil
}

func isName(s string) bool {
	if s == "" || len(s) > MaxVMNameBytes || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return true
}

// isTime tells whether t has a whole number of nanoseconds that a record holds, and is one.
func isTime(t time.Time) bool {
	return !t.IsZero() && t.UnixNano() != 0 && time.Unix(0, t.UnixNano()).Equal(t)
}
