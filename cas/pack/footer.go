package pack

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"flash/cas"
)

const (
	// TrailerBytes is the length of what ends a sealed pack.
	TrailerBytes = 64
	// EntryBytes is the length of one entry of the footer.
	EntryBytes = 40
	// MaxPackBytes bounds a pack: offsets have 32 bits.
	MaxPackBytes = 1<<32 - 1

	trailerMagic      = "FLSHSEAL"
	contentHashOffset = 16
	minRecordBytes    = RecordHeaderBytes + 1
)

// Entry says where in the pack a chunk's record is.
type Entry struct {
	Hash   cas.Hash
	Offset uint32
	Bytes  uint32 // of the whole record
}

// SortEntries gives entries the order they have in a footer.
func SortEntries(entries []Entry) { slices.SortFunc(entries, compareEntries) }

func compareEntries(a, b Entry) int {
	if c := bytes.Compare(a.Hash[:], b.Hash[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.Offset, b.Offset)
}

// Trailer ends a sealed pack.
type Trailer struct {
	Entries     int
	RecordsEnd  int64 // where the records end and the entries begin
	PlainBytes  int64 // of all records
	ContentHash cas.Hash
	entriesCRC  uint32
}

// Bytes is the length of the whole pack.
func (t Trailer) Bytes() int64 { return t.RecordsEnd + int64(t.Entries)*EntryBytes + TrailerBytes }

// appendFooter encodes entries, which must be sorted, and the trailer. content has absorbed all bytes before them.
func appendFooter(dst []byte, entries []Entry, recordsEnd, plainBytes int64, content contentHasher) ([]byte, cas.Hash) {
	start := len(dst)
	dst = slices.Grow(dst, len(entries)*EntryBytes+TrailerBytes)
	for i, e := range entries {
		if i > 0 && compareEntries(entries[i-1], e) >= 0 {
			panic("pack: entries of a footer are not in order")
		}
		dst = append(dst, e.Hash[:]...)
		dst = binary.LittleEndian.AppendUint32(dst, e.Offset)
		dst = binary.LittleEndian.AppendUint32(dst, e.Bytes)
	}
	entriesCRC := crc32.Checksum(dst[start:], castagnoli)
	trailer := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(entries)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(recordsEnd))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(plainBytes))
	content.Write(dst[start:])
	sum := content.sum()
	dst = append(dst, sum[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, entriesCRC)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[trailer:], castagnoli))
	return append(dst, trailerMagic...), sum
}

// ParseTrailer decodes p, the last TrailerBytes of a pack of packBytes.
func ParseTrailer(p []byte, packBytes int64) (Trailer, error) {
	var t Trailer
	if len(p) != TrailerBytes || packBytes > MaxPackBytes {
		return t, fmt.Errorf("pack trailer: %d bytes of a pack of %d: %w", len(p), packBytes, ErrDamaged)
	}
	if string(p[56:]) != trailerMagic {
		return t, fmt.Errorf("pack trailer: magic is %q: %w", p[56:], ErrDamaged)
	}
	want, got := binary.LittleEndian.Uint32(p[52:]), crc32.Checksum(p[:52], castagnoli)
	if want != got {
		return t, fmt.Errorf("pack trailer: checksum is %08x, want %08x: %w", got, want, ErrDamaged)
	}
	count := binary.LittleEndian.Uint32(p)
	t = Trailer{
		Entries: int(count), RecordsEnd: int64(binary.LittleEndian.Uint32(p[4:])),
		PlainBytes: int64(binary.LittleEndian.Uint64(p[8:])), ContentHash: cas.Hash(p[contentHashOffset : contentHashOffset+32]),
		entriesCRC: binary.LittleEndian.Uint32(p[48:]),
	}
	fits := HeaderBytes+int64(count)*minRecordBytes <= t.RecordsEnd &&
		t.PlainBytes >= int64(count) && t.PlainBytes <= int64(count)*cas.MaxChunkBytes
	if t.Bytes() != packBytes || !fits {
		return t, fmt.Errorf("pack trailer: %d entries after %d bytes of records (%d plain) in a pack of %d bytes: %w",
			count, t.RecordsEnd, t.PlainBytes, packBytes, ErrDamaged)
	}
	return t, nil
}

// parseEntries decodes the entries that t announces.
func parseEntries(p []byte, t Trailer) ([]Entry, error) {
	if len(p) != t.Entries*EntryBytes {
		return nil, fmt.Errorf("pack entries: %d bytes for %d entries: %w", len(p), t.Entries, ErrDamaged)
	}
	if got := crc32.Checksum(p, castagnoli); got != t.entriesCRC {
		return nil, fmt.Errorf("pack entries: checksum is %08x, want %08x: %w", got, t.entriesCRC, ErrDamaged)
	}
	entries := make([]Entry, t.Entries)
	end := int64(HeaderBytes)
	for i := range entries {
		q := p[i*EntryBytes:]
		e := Entry{cas.Hash(q[:32]), binary.LittleEndian.Uint32(q[32:]), binary.LittleEndian.Uint32(q[36:])}
		inside := e.Offset >= HeaderBytes && int64(e.Offset)+int64(e.Bytes) <= t.RecordsEnd
		if !inside || e.Bytes < minRecordBytes || e.Bytes > MaxRecordBytes || i > 0 && compareEntries(entries[i-1], e) >= 0 {
			return nil, fmt.Errorf("pack entries: entry %d (%s at %d, %d bytes) is out of order or of bounds: %w",
				i, e.Hash, e.Offset, e.Bytes, ErrDamaged)
		}
		entries[i] = e
		end += int64(e.Bytes)
	}
	if end != t.RecordsEnd {
		return nil, fmt.Errorf("pack entries: they cover %d of %d bytes: %w", end, t.RecordsEnd, ErrDamaged)
	}
	return entries, nil
}
