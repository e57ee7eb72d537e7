package manifest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"flash/cas"
)

const (
	hintVersion = 1
	maxPacks    = InnerEntries + 1 // one for each entry of a patch, and one for its base

	placeUnknown = 0
	placeBehind  = 1
	placePack    = 2
)

// hintWriter collects hints and appends them as an annotation.
type hintWriter struct {
	hints []cas.Hint
	packs []cas.PackID
	known bool
}

func (w *hintWriter) add(h cas.Hint) {
	w.hints = append(w.hints, h)
	if h.IsZero() {
		return
	}
	w.known = true
	if !slices.Contains(w.packs, h.Pack) {
		w.packs = append(w.packs, h.Pack)
	}
}

func (w *hintWriter) appendTo(dst []byte) []byte {
	if !w.known {
		return dst
	}
	dst = append(dst, hintVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(w.packs)))
	for i := range w.packs {
		dst = append(dst, w.packs[i][:]...)
	}
	var last cas.Hint
	for _, h := range w.hints {
		switch {
		case h.IsZero():
			dst = append(dst, placeUnknown)
			continue
		case !last.IsZero() && h.Pack == last.Pack && uint64(h.Offset) == uint64(last.Offset)+uint64(last.Bytes):
			dst = append(dst, placeBehind)
		default:
			dst = binary.AppendUvarint(dst, uint64(placePack+slices.Index(w.packs, h.Pack)))
			dst = binary.AppendUvarint(dst, uint64(h.Offset))
		}
		dst = binary.AppendUvarint(dst, uint64(h.Bytes))
		last = h
	}
	return dst
}

// hintReader gives the hints of an annotation one by one.
type hintReader struct {
	c     *cursor
	packs int // where the table begins in c.p
	count int
	last  cas.Hint
	err   error
}

// readHints reads the table. An absent annotation gives zero hints for ever.
func readHints(c *cursor) (*hintReader, error) {
	if c.at == len(c.p) {
		return &hintReader{}, nil
	}
	version, count := c.u8(), int(c.u16())
	switch {
	case c.short:
		return nil, fmt.Errorf("annotation: %w", errShort)
	case version != hintVersion:
		return nil, fmt.Errorf("annotation version %d, want %d", version, hintVersion)
	case count == 0 || count > maxPacks:
		return nil, fmt.Errorf("annotation names %d packs", count)
	}
	r := &hintReader{c: c, packs: c.at, count: count}
	if c.take(count * len(cas.PackID{})); c.short {
		return nil, fmt.Errorf("annotation: %w", errShort)
	}
	return r, nil
}

func (r *hintReader) next() cas.Hint {
	if r.c == nil || r.err != nil {
		return cas.Hint{}
	}
	var h cas.Hint
	switch place := int(r.c.u32v()); {
	case r.c.short || place == placeUnknown:
		return cas.Hint{}
	case place == placeBehind:
		end := uint64(r.last.Offset) + uint64(r.last.Bytes)
		if r.last.IsZero() || end > 1<<32-1 {
			r.err = fmt.Errorf("annotation: a chunk at %d behind none", end)
			return cas.Hint{}
		}
		h.Pack, h.Offset = r.last.Pack, uint32(end)
	case place-placePack < r.count:
		copy(h.Pack[:], r.c.p[r.packs+(place-placePack)*len(h.Pack):])
		h.Offset = r.c.u32v()
	default:
		r.err = fmt.Errorf("annotation: place %d of %d packs", place, r.count)
		return cas.Hint{}
	}
	h.Bytes = r.c.u32v()
	r.last = h
	return h
}

// end checks that the annotation was used up exactly.
func (r *hintReader) end() error {
	switch {
	case r.err != nil:
		return r.err
	case r.c == nil:
		return nil
	case r.c.short:
		return fmt.Errorf("annotation: %w", errShort)
	case r.c.at != len(r.c.p):
		return fmt.Errorf("%d bytes left over", len(r.c.p)-r.c.at)
	}
	return nil
}
