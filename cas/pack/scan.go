package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"flash/cas"
)

// Found is a record met by a scan. Whole is the record's bytes, reused after the callback returns.
type Found struct {
	Record
	Offset int64
	Whole  []byte
}

// ScanStats counts what a scan met.
type ScanStats struct {
	Records      int
	PlainBytes   int64
	End          int64 // behind the last good record; HeaderBytes when there is none
	DamagedBytes int64 // before End and in no good record
}

// Scan finds every good record in the first size bytes of a pack, in order, and calls each for it. Where a record is
// damaged it looks for the next good one: after a power cut a later write may be there and an earlier one not.
// It stops at the first error of each or of reading; damage is no error.
func Scan(r io.ReaderAt, size int64, each func(f Found) error) (ScanStats, error) {
	st := ScanStats{End: HeaderBytes}
	w := window{r: r, size: size}
	for at := int64(HeaderBytes); at < size; {
		p, err := w.at(at)
		if err != nil {
			return st, err
		}
		rec, err := CheckRecord(p)
		if err != nil {
			at += nextMarker(p)
			continue
		}
		if err := each(Found{rec, at, p[:rec.Bytes()]}); err != nil {
			return st, err
		}
		st.DamagedBytes += at - st.End
		at += int64(rec.Bytes())
		st.Records, st.PlainBytes, st.End = st.Records+1, st.PlainBytes+int64(rec.PlainBytes), at
	}
	return st, nil
}

// nextMarker gives how far behind the first byte of p a record might begin.
func nextMarker(p []byte) int64 {
	if i := bytes.IndexByte(p[1:], recordMarker); i >= 0 {
		return int64(i + 1)
	}
	return int64(len(p))
}

// window gives views of a pack that hold a whole record, wherever it begins, with long sequential reads.
type window struct {
	r     io.ReaderAt
	size  int64
	start int64
	buf   []byte
}

const windowBytes = 4 * cas.MaxChunkBytes

// at gives the bytes from offset on: MaxRecordBytes of them or more, or all there are. offset is below size.
func (w *window) at(offset int64) ([]byte, error) {
	need := min(MaxRecordBytes, w.size-offset)
	if offset < w.start || offset+need > w.start+int64(len(w.buf)) {
		n := min(windowBytes, w.size-offset)
		if int64(cap(w.buf)) < n {
			w.buf = make([]byte, n)
		}
		w.buf = w.buf[:n]
		if _, err := w.r.ReadAt(w.buf, offset); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %d bytes of the pack at offset %d: %w", n, offset, err)
		} else if err != nil {
			return nil, fmt.Errorf("the pack ends before offset %d: %w", offset+n, io.ErrUnexpectedEOF)
		}
		w.start = offset
	}
	return w.buf[offset-w.start:], nil
}
