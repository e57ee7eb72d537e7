package local

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"flash/cas"
	"flash/cas/pack"
)

// runSource gives entries in ascending order; the pack is nil when it is not in the folder any more.
type runSource interface {
	// next gives io.EOF at the end.
	next() (runEntry, *packFile, error)
}

// tableSource gives the entries of tables.
type tableSource struct {
	entries []runEntry // packNumber is into tables
	tables  []*table
}

func newTableSource(tables []*table) *tableSource {
	s := &tableSource{tables: tables}
	for i, t := range tables {
		t.mu.RLock()
		for k, r := range t.records {
			s.entries = append(s.entries, runEntry{k, uint32(i), r.bytes, r.offset})
		}
		t.mu.RUnlock()
	}
	slices.SortFunc(s.entries, func(a, b runEntry) int {
		return cmp.Or(bytes.Compare(a.key[:], b.key[:]), cmp.Compare(a.packNumber, b.packNumber))
	})
	return s
}

func (s *tableSource) next() (runEntry, *packFile, error) {
	if len(s.entries) == 0 {
		return runEntry{}, nil, io.EOF
	}
	e := s.entries[0]
	s.entries = s.entries[1:]
	return e, s.tables[e.packNumber].pack, nil
}

// fileSource gives the entries of a run, with long reads, and checks their CRC at the end.
type fileSource struct {
	run *run
	at  int64
	buf []byte
	p   []byte // what is left of buf
	crc uint32
}

func (s *fileSource) next() (runEntry, *packFile, error) {
	if len(s.p) == 0 {
		end := s.run.entries * runEntryBytes
		if s.at == end {
			if s.crc != s.run.crc {
				return runEntry{}, nil, fmt.Errorf("index run %s: checksum of the entries is wrong: %w", baseName(s.run.path), pack.ErrDamaged)
			}
			return runEntry{}, nil, io.EOF
		}
		if s.buf == nil {
			s.buf = make([]byte, 8192*runEntryBytes)
		}
		s.p = s.buf[:min(int64(len(s.buf)), end-s.at)]
		if _, err := s.run.file.ReadAt(s.p, s.at); err != nil {
			return runEntry{}, nil, fmt.Errorf("index run %s: %w", baseName(s.run.path), err)
		}
		s.crc = crc32.Update(s.crc, castagnoli, s.p)
		s.at += int64(len(s.p))
	}
	e := parseRunEntry(s.p)
	s.p = s.p[runEntryBytes:]
	if int(e.packNumber) >= len(s.run.packs) {
		return e, nil, nil
	}
	return e, s.run.packs[e.packNumber], nil
}

// runWriter writes a run from front to back. room is an upper bound of the entries.
type runWriter struct {
	w       *offsetWriter
	numbers map[*packFile]uint32
	packIDs []cas.PackID
	fanout  []uint32
	bits    uint
	filter  filter
	entries int64
	crc     uint32
	last    runEntry
	buf     []byte
}

// newRunWriter begins a run that covers packs, also those that have no entry in it.
func newRunWriter(f File, room int64, packs []*packFile) *runWriter {
	w := &runWriter{w: &offsetWriter{f: f}, numbers: map[*packFile]uint32{}, bits: fanoutBits(room), filter: newFilter(room)}
	w.fanout = make([]uint32, 1<<w.bits+1)
	for _, p := range packs {
		w.numbers[p] = uint32(len(w.packIDs))
		w.packIDs = append(w.packIDs, p.id)
	}
	return w
}

func (w *runWriter) add(e runEntry, p *packFile) error {
	number, ok := w.numbers[p]
	if !ok {
		return fmt.Errorf("an entry of pack %s, which the run doesn't cover", p.name())
	}
	e.packNumber = number
	if w.entries > 0 && bytes.Compare(w.last.key[:], e.key[:]) > 0 {
		return fmt.Errorf("entries out of order: %w", pack.ErrDamaged)
	}
	if w.entries > 0 && w.last == e {
		return nil // two runs covered the same pack
	}
	w.last = e
	w.entries++
	w.fanout[keyTop(e.key)>>(64-w.bits)+1]++
	w.filter.add(e.key)
	if w.buf = appendRunEntry(w.buf, e); len(w.buf) >= 256<<10 {
		return w.flush()
	}
	return nil
}

func (w *runWriter) flush() error {
	w.crc = crc32.Update(w.crc, castagnoli, w.buf)
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// finish writes what follows the entries, and syncs: a run must not look whole and lack entries after a power cut.
func (w *runWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	var p []byte
	for _, id := range w.packIDs {
		p = append(p, id[:]...)
	}
	for i := range w.fanout {
		if i > 0 {
			w.fanout[i] += w.fanout[i-1]
		}
		p = binary.LittleEndian.AppendUint32(p, w.fanout[i])
	}
	for _, word := range w.filter {
		p = binary.LittleEndian.AppendUint64(p, word)
	}
	tablesCRC := crc32.Checksum(p, castagnoli)
	start := len(p)
	p = append(p, runMagic...)
	p = binary.LittleEndian.AppendUint64(p, uint64(w.entries))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(w.packIDs)))
	p = binary.LittleEndian.AppendUint32(p, uint32(w.bits))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(w.filter)/filterBlockWords))
	p = binary.LittleEndian.AppendUint32(p, w.crc)
	p = binary.LittleEndian.AppendUint32(p, tablesCRC)
	p = append(p, make([]byte, 24)...)
	p = binary.LittleEndian.AppendUint32(p, crc32.Checksum(p[start:], castagnoli))
	if _, err := w.w.Write(p); err != nil {
		return err
	}
	return w.w.f.Sync()
}

// mergeRuns writes what the sources give in one ascending stream, and leaves out the entries of packs that are gone.
func mergeRuns(w *runWriter, sources []runSource) error {
	type head struct {
		e    runEntry
		pack *packFile
		src  runSource
	}
	var heads []head
	for _, src := range sources {
		e, p, err := src.next()
		if err == io.EOF {
			continue
		} else if err != nil {
			return err
		}
		heads = append(heads, head{e, p, src})
	}
	for len(heads) > 0 {
		least := 0
		for i := range heads { // a handful: runs double in size
			if bytes.Compare(heads[i].e.key[:], heads[least].e.key[:]) < 0 {
				least = i
			}
		}
		h := &heads[least]
		if h.pack != nil {
			if err := w.add(h.e, h.pack); err != nil {
				return err
			}
		}
		e, p, err := h.src.next()
		if err == io.EOF {
			heads = slices.Delete(heads, least, least+1)
		} else if err != nil {
			return err
		} else {
			h.e, h.pack = e, p
		}
	}
	return w.finish()
}

// offsetWriter is an io.Writer onto a File, from the front.
type offsetWriter struct {
	f  File
	at int64
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}
