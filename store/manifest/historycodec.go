package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

const (
	magicHistory = 'H'

	flagExitCode = 1 << 0
	flagPinned   = 1 << 1
	flagFork     = 1 << 2

	// The least a checkpoint and a ledger entry take: what a count is bounded by before anything is allocated for it.
	leastCheckpointBytes = 4 + 4 + 32 + 8 + 8 + 1 + 4
	leastLedgerBytes     = 8 + 1 + 1 + 4

	crcBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends the history. Its error says what is out of bounds or order; what it accepts DecodeHistory gives back.
func (h *History) Append(dst []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return dst, fmt.Errorf("history of %.140q: %w: %w", h.VM, err, ErrFormat)
	}
	start := len(dst)
	dst = append(dst, magicHistory, Version, 0, byte(len(h.VM)))
	dst = append(dst, h.VM...)
	dst = appendTime(dst, h.Created)
	dst = append(dst, h.Bundle[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Head+1))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Next))
	dst = appendBytes32(dst, h.Spec)
	dst = appendBytes32(dst, h.Retention)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.Checkpoints)))
	for i := range h.Checkpoints {
		dst = h.Checkpoints[i].append(dst)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.Ledger)))
	if len(h.Ledger) > 0 {
		dst = binary.LittleEndian.AppendUint64(dst, h.Ledger[0].Seq)
		dst = append(dst, h.Ledger[0].Prev[:]...)
	}
	for i := range h.Ledger {
		e := &h.Ledger[i]
		dst = appendTime(dst, e.Time)
		dst = append(dst, byte(len(e.Kind)))
		dst = append(dst, e.Kind...)
		dst = appendBytes32(dst, e.Data)
	}
	if len(h.Ledger) > 0 {
		dst = append(dst, h.Ledger[len(h.Ledger)-1].Hash[:]...)
	}
	if len(dst)-start > MaxHistoryBytes-crcBytes {
		return dst[:start], fmt.Errorf("history of %q: %d bytes, at most %d: %w", h.VM, len(dst)-start, MaxHistoryBytes, ErrFormat)
	}
	return sealCRC(dst, start), nil
}

func (c *NamedSnapshot) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.Number))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.Parent+1))
	dst = append(dst, c.Snapshot[:]...)
	dst = appendTime(dst, c.Created)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.NewBytes))
	flags := byte(0)
	if c.ExitCode != nil {
		flags |= flagExitCode
	}
	if c.Pinned {
		flags |= flagPinned
	}
	if c.FromVM != "" {
		flags |= flagFork
	}
	dst = append(dst, flags)
	if c.ExitCode != nil {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(int32(*c.ExitCode)))
	}
	if c.FromVM != "" {
		dst = append(dst, byte(len(c.FromVM)))
		dst = append(dst, c.FromVM...)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(c.FromNumber))
	}
	return appendBytes32(dst, []byte(c.Label))
}

// DecodeHistory decodes a whole history. It keeps no reference to p.
func DecodeHistory(p []byte) (*History, error) {
	h, err := decodeHistory(p)
	if err != nil {
		return nil, fmt.Errorf("history of %d bytes: %w: %w", len(p), err, ErrFormat)
	}
	return h, nil
}

func decodeHistory(p []byte) (*History, error) {
	if len(p) > MaxHistoryBytes {
		return nil, fmt.Errorf("at most %d bytes are read", MaxHistoryBytes)
	}
	body, err := checkCRC(p)
	if err != nil {
		return nil, err
	}
	c := cursor{p: body}
	if head := c.take(3); c.short || head[0] != magicHistory || head[1] != Version || head[2] != 0 {
		return nil, fmt.Errorf("it begins with % x, want %x %x 0", head, magicHistory, Version)
	}
	h := &History{VM: string(c.take(int(c.u8())))}
	h.Created = c.time()
	copy(h.Bundle[:], c.take(32))
	h.Head = c.number() - 1
	h.Next = c.number()
	h.Spec = c.bytes32(MaxSpecBytes)
	h.Retention = c.bytes32(MaxSpecBytes)
	if count := c.count(leastCheckpointBytes); count > 0 {
		h.Checkpoints = make([]NamedSnapshot, count)
	}
	for i := range h.Checkpoints {
		if err := h.Checkpoints[i].decode(&c); err != nil {
			return nil, err
		}
	}
	if err := h.decodeLedger(&c); err != nil {
		return nil, err
	}
	if c.short {
		return nil, errShort
	}
	if c.at != len(c.p) {
		return nil, fmt.Errorf("%d bytes are left over", len(c.p)-c.at)
	}
	return h, h.check()
}

func (n *NamedSnapshot) decode(c *cursor) error {
	n.Number, n.Parent = c.number(), c.number()-1
	copy(n.Snapshot[:], c.take(32))
	n.Created = c.time()
	n.NewBytes = int64(c.u64())
	flags := c.u8()
	if flags > flagExitCode|flagPinned|flagFork {
		return fmt.Errorf("checkpoint %d has flags %#x", n.Number, flags)
	}
	n.Pinned = flags&flagPinned != 0
	if flags&flagExitCode != 0 {
		code := int(int32(c.u32()))
		n.ExitCode = &code
	}
	if flags&flagFork != 0 {
		if n.FromVM = string(c.take(int(c.u8()))); n.FromVM == "" {
			return fmt.Errorf("checkpoint %d is forked from no name", n.Number)
		}
		n.FromNumber = c.number()
	}
	n.Label = string(c.bytes32(MaxLabelBytes))
	return nil
}

func (h *History) decodeLedger(c *cursor) error {
	count := c.count(leastLedgerBytes)
	if count == 0 {
		return nil
	}
	h.Ledger = make([]LedgerEntry, count)
	seq := c.u64()
	if seq == 0 || seq > math.MaxUint64-uint64(len(h.Ledger)) {
		return fmt.Errorf("the ledger begins with entry %d", seq)
	}
	h.Ledger[0].Seq = seq
	copy(h.Ledger[0].Prev[:], c.take(32))
	for i := range h.Ledger {
		e := &h.Ledger[i]
		if i > 0 {
			e.Seq, e.Prev = h.Ledger[i-1].Seq+1, h.Ledger[i-1].Hash
		}
		e.Time = c.time()
		e.Kind = string(c.take(int(c.u8())))
		e.Data = c.bytes32(MaxLedgerData)
		if c.short {
			return errShort
		}
		e.Hash = e.Sum()
	}
	if last := c.take(32); last == nil || [32]byte(last) != h.Ledger[len(h.Ledger)-1].Hash {
		return fmt.Errorf("the ledger's last entry doesn't hash to its name")
	}
	return nil
}

func appendTime(dst []byte, t time.Time) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(t.UnixNano()))
}

func appendBytes32(dst, p []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p)))
	return append(dst, p...)
}

// sealCRC appends the checksum of what follows start.
func sealCRC(dst []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// checkCRC takes the checksum off.
func checkCRC(p []byte) ([]byte, error) {
	if len(p) < crcBytes {
		return nil, errShort
	}
	body := p[:len(p)-crcBytes]
	if want, got := binary.LittleEndian.Uint32(p[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return nil, fmt.Errorf("checksum %08x, want %08x", got, want)
	}
	return body, nil
}
