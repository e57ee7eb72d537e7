package pack

import (
	"errors"
	"fmt"
	"io"

	"flash/cas"
)

// Sealed is an open sealed pack. Opening reads the header and the trailer only.
type Sealed struct {
	Header
	Trailer
	r io.ReaderAt
}

// OpenSealed opens a sealed pack of size bytes.
func OpenSealed(r io.ReaderAt, size int64) (*Sealed, error) {
	if size < HeaderBytes+TrailerBytes || size > MaxPackBytes {
		return nil, fmt.Errorf("sealed pack: %d bytes: %w", size, ErrDamaged)
	}
	var p [HeaderBytes + TrailerBytes]byte
	if err := readFull(r, p[:HeaderBytes], 0); err != nil {
		return nil, err
	}
	if err := readFull(r, p[HeaderBytes:], size-TrailerBytes); err != nil {
		return nil, err
	}
	h, err := ParseHeader(p[:HeaderBytes])
	if err != nil {
		return nil, err
	}
	t, err := ParseTrailer(p[HeaderBytes:], size)
	if err != nil {
		return nil, err
	}
	return &Sealed{Header: h, Trailer: t, r: r}, nil
}

// Entries reads the footer: every record's place, ascending by hash.
func (s *Sealed) Entries() ([]Entry, error) {
	p := make([]byte, s.Trailer.Entries*EntryBytes)
	if err := readFull(s.r, p, s.RecordsEnd); err != nil {
		return nil, err
	}
	return parseEntries(p, s.Trailer)
}

// Verify reads the whole pack and checks everything: the content hash, every record with its name, and that the footer
// lists exactly the records that are there. bad is called for every damaged record; the error is about the pack.
func (s *Sealed) Verify(d *Decoder, bad func(e Entry, err error)) error {
	contentErr := s.CheckContent()
	if contentErr != nil && !errors.Is(contentErr, ErrDamaged) {
		return contentErr
	}
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	var plain []byte
	var plainBytes int64
	damaged := false
	w := window{r: s.r, size: s.RecordsEnd}
	for _, e := range byOffset(entries) {
		p, err := w.at(int64(e.Offset))
		if err != nil {
			return err
		}
		var rec Record
		plain, rec, err = d.AppendPlain(plain[:0], p[:min(len(p), int(e.Bytes))])
		if err == nil && (rec.Hash != e.Hash || rec.Bytes() != int(e.Bytes)) {
			err = fmt.Errorf("the record is of %s and %d bytes long, the footer says otherwise: %w", rec.Hash, rec.Bytes(), ErrDamaged)
		}
		if err != nil {
			damaged = true
			bad(e, err)
		}
		plainBytes += int64(rec.PlainBytes)
	}
	if contentErr != nil {
		return contentErr
	}
	if !damaged && plainBytes != s.Trailer.PlainBytes {
		return fmt.Errorf("the records hold %d plain bytes, the trailer says %d: %w", plainBytes, s.Trailer.PlainBytes, ErrDamaged)
	}
	return nil
}

// readFull fills p from offset.
func readFull(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes of the pack at offset %d: %w", len(p), offset, err)
}

// FileName is what a sealed pack is called, in a folder and in object storage.
func FileName(contentHash cas.Hash) string { return contentHash.String() + ".pack" }
