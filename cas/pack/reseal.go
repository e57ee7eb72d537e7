package pack

import (
	"context"
	"fmt"

	"flash/cas"
)

// Recoder compresses records again with another codec: what was captured with s2 in a hurry is a fifth smaller with
// zstd. Names, kinds and annotations stay. Not safe for concurrent use.
type Recoder struct {
	codec Codec
	enc   *Encoder
	dec   *Decoder
	plain []byte
	out   []byte
}

// NewRecoder gives a recoder to codec. The hasher checks every record on its way.
func NewRecoder(codec Codec, hasher cas.Hasher) *Recoder {
	return &Recoder{codec: codec, enc: NewEncoder(codec), dec: NewDecoder(hasher)}
}

// Recode gives the record anew, having checked its CRC and its name. The result is reused by the next call.
func (c *Recoder) Recode(record []byte) ([]byte, error) {
	plain, r, err := c.dec.AppendPlain(c.plain[:0], record)
	if err != nil {
		return nil, err
	}
	c.plain = plain
	if r.Codec == c.codec {
		return record[:r.Bytes()], nil
	}
	c.out = c.enc.AppendRecord(c.out[:0], &cas.Chunk{Hash: r.Hash, Kind: r.Kind, Named: r.NamedBytes, Data: plain})
	return c.out, nil
}

// Reseal copies what keep wants from a sealed pack into b, compressed again by c, in the order of the old pack.
// It stops at a damaged record: what cannot be checked is not given a new seal.
func (s *Sealed) Reseal(ctx context.Context, b *Builder, c *Recoder, keep func(e Entry) bool) error {
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	w := window{r: s.r, size: s.RecordsEnd}
	for _, e := range byOffset(entries) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !keep(e) {
			continue
		}
		p, err := w.at(int64(e.Offset))
		if err != nil {
			return err
		}
		record, err := c.Recode(p[:min(len(p), int(e.Bytes))])
		if err != nil {
			return fmt.Errorf("record %s at offset %d: %w", e.Hash, e.Offset, err)
		}
		if _, err := b.Add(record); err != nil {
			return err
		}
	}
	return nil
}
