package manifest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zeebo/blake3"

	"flash/cas"
)

// LedgerEntry is one link of a VM's hash-chained record.
type LedgerEntry struct {
	Seq  uint64 // 1, 2, 3 …
	Time time.Time
	Kind string
	Data []byte // compact JSON
	Prev cas.Hash
	Hash cas.Hash
}

// Sum is what Hash must be: the BLAKE3-256, without a key, so that a ledger can be verified away from its store, of
//
//	u8 1 · u64 seq · i64 nanoseconds since 1970 UTC · u8 length, kind · u32 length, data · 32 B prev    little-endian
//
// data being compact JSON, byte for byte as stored.
func (e *LedgerEntry) Sum() cas.Hash {
	p := make([]byte, 0, 64+len(e.Kind)+len(e.Data))
	p = append(p, 1)
	p = binary.LittleEndian.AppendUint64(p, e.Seq)
	p = binary.LittleEndian.AppendUint64(p, uint64(e.Time.UnixNano()))
	p = append(p, byte(len(e.Kind)))
	p = append(p, e.Kind...)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.Data)))
	p = append(p, e.Data...)
	p = append(p, e.Prev[:]...)
	return blake3.Sum256(p)
}

// checkLedger refuses entries that aren't one chain.
func (h *History) checkLedger() error {
	for i := range h.Ledger {
		e := &h.Ledger[i]
		switch {
		case e.Kind == "" || len(e.Kind) > MaxLedgerKind || len(e.Data) > MaxLedgerData || !isTime(e.Time):
			return fmt.Errorf("ledger entry %d: kind %.80q with %d bytes at %v", e.Seq, e.Kind, len(e.Data), e.Time)
		case e.Seq == 0 || (e.Seq == 1) != e.Prev.IsZero():
			return fmt.Errorf("ledger entry %d follows %s", e.Seq, e.Prev)
		case i > 0 && (e.Seq != h.Ledger[i-1].Seq+1 || e.Prev != h.Ledger[i-1].Hash):
			return fmt.Errorf("ledger entry %d isn't chained to %d", e.Seq, h.Ledger[i-1].Seq)
		case e.Hash != e.Sum():
			return fmt.Errorf("ledger entry %d doesn't hash to its name", e.Seq)
		}
	}
	return nil
}

// TrimLedger keeps the newest entries only.
func (h *History) TrimLedger(entries int) {
	if cut := len(h.Ledger) - entries; cut > 0 {
		h.Ledger = h.Ledger[cut:]
	}
}
