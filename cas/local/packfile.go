package local

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flash/cas"
	"flash/cas/pack"
)

// packFile is a pack in the folder.
//
//	open ──rotate──▶ rotated ──seal──▶ sealed ──sweep──▶ condemned ──▶ gone
//
// Its records end at end and are never changed; what is before end may be read at any time.
type packFile struct {
	id      cas.PackID
	created time.Time
	damage  error        // why a file that was sealed is only searched for records; nil: it isn't
	end     atomic.Int64 // where the records end
	records atomic.Int64
	plain   atomic.Int64 // plain bytes of the records

	condemned atomic.Bool // being swept: readable, but nothing new may refer to it
	sealed    atomic.Bool // whole, durable, under its final name

	ioMu      sync.Mutex // guards the rest of this block; held across sync, seal and rescue
	syncedEnd int64      // what is before is durable, if dirSynced
	dirSynced bool       // the folder's entry for this file is durable
	suspect   bool       // a sync failed: the medium may lack what reads show

	mu    sync.RWMutex // guards the rest; held for reading across a pread
	path  string
	file  File // nil: closed to save descriptors, opened again by the next read
	bytes int64
	gone  bool
}

// errGone: the pack was swept away since it was looked up. Look again.
var errGone = errors.New("the pack is gone")

// readRecord reads the record at l into buf's room.
func (s *Store) readRecord(l location, buf []byte) ([]byte, error) {
	if !readable(l) {
		return nil, fmt.Errorf("no record of %d bytes can be at offset %d: %w", l.bytes, l.offset, pack.ErrDamaged)
	}
	if cap(buf) < int(l.bytes) {
		buf = make([]byte, l.bytes)
	}
	buf = buf[:l.bytes]
	return buf, s.readPack(l.pack, buf, int64(l.offset))
}

// readPack fills buf from the pack's file, opening it when it has to.
func (s *Store) readPack(p *packFile, buf []byte, offset int64) error {
	for {
		p.mu.RLock()
		if p.gone {
			p.mu.RUnlock()
			return errGone
		}
		if p.file != nil {
			n, err := p.file.ReadAt(buf, offset)
			p.mu.RUnlock()
			if n == len(buf) {
				return nil
			}
			return fmt.Errorf("read %d bytes at offset %d: %w", len(buf), offset, err)
		}
		p.mu.RUnlock()
		if err := s.reopenPack(p); err != nil {
			return err
		}
	}
}

func (s *Store) reopenPack(p *packFile) error {
	p.mu.Lock()
	if p.gone || p.file != nil {
		p.mu.Unlock()
		return nil
	}
	f, err := s.fs.Open(p.path)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	p.file = f
	p.mu.Unlock()
	s.handles.opened(p)
	return nil
}

// readerOf gives the whole pack as an io.ReaderAt.
func (s *Store) readerOf(p *packFile) packReader { return packReader{s, p} }

type packReader struct {
	s *Store
	p *packFile
}

func (r packReader) ReadAt(buf []byte, offset int64) (int, error) {
	if err := r.s.readPack(r.p, buf, offset); err != nil {
		return 0, err
	}
	return len(buf), nil
}

// name is the file's, for people.
func (p *packFile) name() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return baseName(p.path)
}

// close gives the descriptor back; the next read opens the file again.
func (p *packFile) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	return err
}

// handles bounds how many files are open. Packs that are written to are not counted: they stay open.
type handles struct {
	mu    sync.Mutex
	limit int
	fifo  []*packFile
}

// opened notes that p's file was opened, and closes the one opened longest ago when there are too many.
func (h *handles) opened(p *packFile) {
	h.mu.Lock()
	h.fifo = append(h.fifo, p)
	var oldest *packFile
	if len(h.fifo) > h.limit {
		oldest = h.fifo[0]
		h.fifo = h.fifo[1:]
	}
	h.mu.Unlock()
	if oldest != nil {
		oldest.close()
	}
}

// readable tells whether a record can be at l, without reading.
func readable(l location) bool {
	return l.offset >= pack.HeaderBytes && l.bytes >= pack.RecordHeaderBytes && l.bytes <= pack.MaxRecordBytes &&
		int64(l.offset)+int64(l.bytes) <= l.pack.end.Load()
}
