package pack

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"flash/cas"
)

// Seal makes the footer for an open pack whose records end at recordsEnd, and gives the content hash the pack has once
// the footer is appended. It reads the whole pack and refuses one that is damaged: a seal vouches for what is before it.
func Seal(r io.ReaderAt, recordsEnd int64) (footer []byte, contentHash cas.Hash, err error) {
	var head [HeaderBytes]byte
	if err := readFull(r, head[:], 0); err != nil {
		return nil, cas.Hash{}, err
	}
	if _, err := ParseHeader(head[:]); err != nil {
		return nil, cas.Hash{}, err
	}
	content := newContentHasher()
	content.Write(head[:])
	var entries []Entry
	st, err := Scan(r, recordsEnd, func(f Found) error {
		content.Write(f.Whole)
		entries = append(entries, Entry{f.Hash, uint32(f.Offset), uint32(f.Bytes())})
		return nil
	})
	if err != nil {
		return nil, cas.Hash{}, err
	}
	if st.DamagedBytes > 0 || st.End != recordsEnd {
		return nil, cas.Hash{}, fmt.Errorf("seal the pack: %d bytes among the records and %d behind them are in no good record: %w",
			st.DamagedBytes, recordsEnd-st.End, ErrDamaged)
	}
	SortEntries(entries)
	footer, contentHash = appendFooter(nil, entries, recordsEnd, st.PlainBytes, content)
	return footer, contentHash, nil
}

// Builder writes a sealed pack from front to back.
type Builder struct {
	w          io.Writer
	content    contentHasher
	entries    []Entry
	names      map[cas.Hash]struct{} // of entries
	at         int64
	plainBytes int64
	err        error // the first failed write; nothing is written after it
}

// NewBuilder begins a pack on w.
func NewBuilder(w io.Writer, h Header) *Builder {
	b := &Builder{w: w, content: newContentHasher(), names: map[cas.Hash]struct{}{}}
	b.write(AppendHeader(nil, h))
	return b
}

// Add appends a record, whose CRC it checks, and gives its place.
func (b *Builder) Add(record []byte) (Entry, error) {
	r, err := CheckRecord(record)
	if err != nil {
		return Entry{}, err
	}
	if b.at+int64(len(record))+int64(len(b.entries)+1)*EntryBytes+TrailerBytes > MaxPackBytes {
		return Entry{}, fmt.Errorf("the pack is full: %d bytes", b.at)
	}
	e := Entry{r.Hash, uint32(b.at), uint32(r.Bytes())}
	b.write(record[:r.Bytes()])
	b.entries = append(b.entries, e)
	b.names[r.Hash] = struct{}{}
	b.plainBytes += int64(r.PlainBytes)
	return e, b.err
}

// Has tells whether a record of that name was added.
func (b *Builder) Has(h cas.Hash) bool {
	_, ok := b.names[h]
	return ok
}

// Bytes is the length so far, footer not counted.
func (b *Builder) Bytes() int64 { return b.at }

// Finish writes the footer. The entries are ascending by hash; the pack's length is the second result's Bytes.
func (b *Builder) Finish() ([]Entry, Trailer, error) {
	SortEntries(b.entries)
	t := Trailer{Entries: len(b.entries), RecordsEnd: b.at, PlainBytes: b.plainBytes}
	if b.err != nil {
		return nil, t, b.err
	}
	footer, sum := appendFooter(nil, b.entries, b.at, b.plainBytes, b.content)
	t.ContentHash = sum
	_, err := b.w.Write(footer)
	return b.entries, t, err
}

func (b *Builder) write(p []byte) {
	if b.err != nil {
		return
	}
	_, b.err = b.w.Write(p)
	b.content.Write(p)
	b.at += int64(len(p))
}

// byOffset gives a copy in the order of reading.
func byOffset(entries []Entry) []Entry {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int { return cmp.Compare(a.Offset, b.Offset) })
	return sorted
}
