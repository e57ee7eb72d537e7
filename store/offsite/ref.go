package offsite

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zeebo/blake3"

	"flash/store/manifest"
)

// refRecord is a VM's ref as it lies in the bucket; its format is in doc.go.
type refRecord struct {
	VM       string
	Removed  bool // a tombstone: who removed it, so that the epochs go on where they were
	Owner    HostID
	HostName string
	Epoch    uint64 // from 1; grows with every change of owner
	Seq      uint64 // from 1; grows with every write
	Since    time.Time
	Pushed   time.Time
	History  []byte // store/manifest's; empty of a tombstone
}

const (
	refMagic       = "FLASHREF"
	refVersion     = 1
	refHeadBytes   = 76
	refSumBytes    = 32
	maxHostName    = 255
	maxRefBytes    = refHeadBytes + maxHostName + manifest.MaxVMNameBytes + manifest.MaxHistoryBytes + refSumBytes
	refLive        = 1
	refRemoved     = 2
	historyRaw     = 0
	historyZstd    = 1
	maxHistoryFold = 256 // a history is at most so many times longer than its frame: what is read bounds what is allocated
)

// append encodes r. Its error says what is out of bounds; what it accepts decodeRef gives back.
func (r *refRecord) append(dst []byte) ([]byte, error) {
	if err := r.check(); err != nil {
		return dst, fmt.Errorf("ref of flashvm %.40q: %w: %w", r.VM, err, ErrFormat)
	}
	start := len(dst)
	state, codec, stored := byte(refLive), byte(historyRaw), r.History
	if r.Removed {
		state = refRemoved
	}
	if z := compress(r.History); len(z) < len(stored) && len(r.History) <= maxHistoryFold*len(z) {
		codec, stored = historyZstd, z
	}
	dst = append(dst, refMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, refVersion)
	dst = append(dst, state, codec)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.History)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(stored)))
	dst = append(dst, r.Owner[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, r.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seq)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Since.UnixNano()))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Pushed.UnixNano()))
	dst = append(dst, byte(len(r.HostName)), byte(len(r.VM)), 0, 0, 0, 0, 0, 0)
	dst = append(dst, r.HostName...)
	dst = append(dst, r.VM...)
	dst = append(dst, stored...)
	sum := blake3.Sum256(dst[start:])
	return append(dst, sum[:]...), nil
}

// decodeRef reads what append wrote. Everything is checked but the history, which has its own decoder.
func decodeRef(p []byte) (*refRecord, error) {
	r, err := parseRef(p)
	if err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	return r, nil
}

func parseRef(p []byte) (*refRecord, error) {
	if len(p) < refHeadBytes+refSumBytes || int64(len(p)) > maxRefBytes {
		return nil, fmt.Errorf("%d bytes: %w", len(p), ErrFormat)
	}
	if string(p[:8]) != refMagic {
		return nil, fmt.Errorf("it begins with %q: %w", p[:8], ErrFormat)
	}
	if v := binary.LittleEndian.Uint16(p[8:]); v != refVersion {
		return nil, fmt.Errorf("version %d, this program knows %d: %w", v, refVersion, ErrFormat)
	}
	body := p[:len(p)-refSumBytes]
	if sum := blake3.Sum256(body); string(sum[:]) != string(p[len(body):]) {
		return nil, fmt.Errorf("its checksum is wrong: %w", ErrFormat)
	}
	le := binary.LittleEndian
	plain, stored, host, name := le.Uint32(p[12:]), le.Uint32(p[16:]), int(p[68]), int(p[69])
	if string(p[70:refHeadBytes]) != "\x00\x00\x00\x00\x00\x00" || int64(len(body)) != int64(refHeadBytes+host+name)+int64(stored) {
		return nil, fmt.Errorf("%d bytes for names of %d and %d bytes and a history of %d: %w", len(p), host, name, stored, ErrFormat)
	}
	if plain > manifest.MaxHistoryBytes || int64(plain) > maxHistoryFold*int64(stored) {
		return nil, fmt.Errorf("a history of %d bytes in %d: %w", plain, stored, ErrFormat)
	}
	r := &refRecord{
		Removed: p[10] == refRemoved, Owner: HostID(p[20:36]), Epoch: le.Uint64(p[36:]), Seq: le.Uint64(p[44:]),
		Since: timeOf(p[52:]), Pushed: timeOf(p[60:]),
	}
	rest := body[refHeadBytes:]
	r.HostName, r.VM, rest = string(rest[:host]), string(rest[host:host+name]), rest[host+name:]
	if p[10] != refLive && p[10] != refRemoved {
		return nil, fmt.Errorf("state %d: %w", p[10], ErrFormat)
	}
	var err error
	if r.History, err = historyOf(p[11], rest, int(plain)); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrFormat)
	}
	return r, nil
}

func historyOf(codec byte, stored []byte, plainBytes int) ([]byte, error) {
	switch {
	case codec == historyRaw && len(stored) == plainBytes:
		return append([]byte(nil), stored...), nil
	case codec == historyZstd && plainBytes > len(stored):
		return decompress(stored, plainBytes)
	}
	return nil, fmt.Errorf("a history of %d bytes in %d by codec %d: %w", plainBytes, len(stored), codec, ErrFormat)
}

// check is what both append and decodeRef refuse.
func (r *refRecord) check() error {
	switch {
	case r.VM == "" || len(r.VM) > manifest.MaxVMNameBytes:
		return fmt.Errorf("a name of %d bytes", len(r.VM))
	case len(r.HostName) > maxHostName:
		return fmt.Errorf("a host's name of %d bytes", len(r.HostName))
	case r.Owner == HostID{}:
		return fmt.Errorf("it has no owner")
	case r.Epoch == 0 || r.Seq == 0:
		return fmt.Errorf("epoch %d, seq %d", r.Epoch, r.Seq)
	case !isTime(r.Since) || !isTime(r.Pushed):
		return fmt.Errorf("owned since %v, pushed at %v", r.Since, r.Pushed)
	case r.Removed != (len(r.History) == 0):
		return fmt.Errorf("removed %v, with a history of %d bytes", r.Removed, len(r.History))
	case len(r.History) > manifest.MaxHistoryBytes:
		return fmt.Errorf("a history of %d bytes", len(r.History))
	}
	return nil
}

func timeOf(p []byte) time.Time { return time.Unix(0, int64(binary.LittleEndian.Uint64(p))).UTC() }

// isTime tells whether 64 bits of nanoseconds hold t.
func isTime(t time.Time) bool { return time.Unix(0, t.UnixNano()).Equal(t) }
