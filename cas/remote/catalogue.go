package remote

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/zeebo/blake3"

	"flash/cas"
	"flash/cas/pack"
)

const (
	// CatalogueVersion is the format version this package writes, and the only one it reads.
	CatalogueVersion = 1

	catalogueHeaderBytes  = 64
	cataloguePackBytes    = 80
	catalogueTrailerBytes = 40
	catalogueMagic        = "FLSHCATL"
	catalogueEndMagic     = "FLSHCEND"

	maxCatalogueBytes    = 256 << 20
	targetCatalogueBytes = 16 << 20 // some 400,000 entries

	minRecordBytes = pack.RecordHeaderBytes + 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCatalogue: a catalogue object's bytes are not what was written, or of a version this one doesn't read.
var ErrCatalogue = errors.New("the catalogue can't be used")

// ErrNewer: it isn't damaged, but of a version that this flash doesn't read. It is an ErrCatalogue too.
var ErrNewer = fmt.Errorf("a newer flash wrote it: %w", ErrCatalogue)

// Catalogued is one pack as a catalogue lists it.
type Catalogued struct {
	ID          cas.PackID
	ContentHash cas.Hash
	Bytes       int64
	PlainBytes  int64
	Created     time.Time
	Entries     []pack.Entry // ascending by hash, then by offset
}

// recordsEnd is where the footer of the pack begins.
func (c *Catalogued) recordsEnd() int64 {
	return c.Bytes - int64(len(c.Entries))*pack.EntryBytes - pack.TrailerBytes
}

// check tells why no pack can be like that, or nil. The encoder asks it as well as the decoder.
func (c *Catalogued) check() error {
	end := c.recordsEnd()
	if c.ID == (cas.PackID{}) || c.ContentHash.IsZero() || c.Bytes > pack.MaxPackBytes || end < pack.HeaderBytes ||
		c.PlainBytes < int64(len(c.Entries)) || c.PlainBytes > int64(len(c.Entries))*cas.MaxChunkBytes {
		return fmt.Errorf("pack %s: id %x, %d bytes, %d entries, %d plain bytes: %w",
			c.ContentHash, c.ID, c.Bytes, len(c.Entries), c.PlainBytes, ErrCatalogue)
	}
	for i, e := range c.Entries {
		inside := e.Offset >= pack.HeaderBytes && int64(e.Offset)+int64(e.Bytes) <= end
		if !inside || e.Bytes < minRecordBytes || e.Bytes > pack.MaxRecordBytes || i > 0 && compareEntries(c.Entries[i-1], e) >= 0 {
			return fmt.Errorf("pack %s: entry %d (%s at %d, %d bytes) is out of order or of bounds: %w",
				c.ContentHash, i, e.Hash, e.Offset, e.Bytes, ErrCatalogue)
		}
	}
	return nil
}

func compareEntries(a, b pack.Entry) int {
	if c := bytes.Compare(a.Hash[:], b.Hash[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.Offset, b.Offset)
}

func comparePacks(a, b Catalogued) int { return bytes.Compare(a.ContentHash[:], b.ContentHash[:]) }

// catalogueBytes is how long a catalogue of that many is.
func catalogueBytes(packs, entries int64) int64 {
	return catalogueHeaderBytes + packs*cataloguePackBytes + entries*pack.EntryBytes + catalogueTrailerBytes
}

// EncodeCatalogue makes the object, and gives its content hash. packs is sorted by it.
func EncodeCatalogue(keyID uint32, packs []Catalogued) ([]byte, cas.Hash, error) {
	slices.SortFunc(packs, comparePacks)
	entries := int64(0)
	for i := range packs {
		if err := packs[i].check(); err != nil {
			return nil, cas.Hash{}, err
		}
		if i > 0 && packs[i-1].ContentHash == packs[i].ContentHash {
			return nil, cas.Hash{}, fmt.Errorf("pack %s is listed twice: %w", packs[i].ContentHash, ErrCatalogue)
		}
		entries += int64(len(packs[i].Entries))
	}
	size := catalogueBytes(int64(len(packs)), entries)
	if size > maxCatalogueBytes {
		return nil, cas.Hash{}, fmt.Errorf("%d packs with %d entries make %d bytes, want at most %d: %w",
			len(packs), entries, size, int64(maxCatalogueBytes), ErrCatalogue)
	}
	le := binary.LittleEndian
	p := make([]byte, 0, size)
	p = append(p, catalogueMagic...)
	p = le.AppendUint16(p, CatalogueVersion)
	p = le.AppendUint16(p, catalogueHeaderBytes)
	p = le.AppendUint32(p, keyID)
	p = le.AppendUint32(p, uint32(len(packs)))
	p = le.AppendUint32(p, 0)
	p = le.AppendUint64(p, uint64(entries))
	p = append(p, make([]byte, 28)...)
	p = le.AppendUint32(p, crc32.Checksum(p, castagnoli))
	for i := range packs {
		c := &packs[i]
		p = append(p, c.ID[:]...)
		p = append(p, c.ContentHash[:]...)
		p = le.AppendUint64(p, uint64(c.Bytes))
		p = le.AppendUint64(p, uint64(c.PlainBytes))
		p = le.AppendUint64(p, uint64(c.Created.UnixNano()))
		p = le.AppendUint32(p, uint32(len(c.Entries)))
		p = le.AppendUint32(p, 0)
	}
	for i := range packs {
		for _, e := range packs[i].Entries {
			p = append(p, e.Hash[:]...)
			p = le.AppendUint32(p, e.Offset)
			p = le.AppendUint32(p, e.Bytes)
		}
	}
	sum := cas.Hash(blake3.Sum256(p))
	p = append(p, sum[:]...)
	return append(p, catalogueEndMagic...), sum, nil
}

// DecodeCatalogue reads an object, and gives its key id and content hash.
func DecodeCatalogue(p []byte) (keyID uint32, contentHash cas.Hash, packs []Catalogued, err error) {
	le := binary.LittleEndian
	bad := func(format string, args ...any) (uint32, cas.Hash, []Catalogued, error) {
		return 0, cas.Hash{}, nil, fmt.Errorf(format+": %w", append(args, ErrCatalogue)...)
	}
	if len(p) < catalogueHeaderBytes+catalogueTrailerBytes || string(p[:8]) != catalogueMagic {
		return bad("%d bytes that begin with %q", len(p), p[:min(len(p), 8)])
	}
	if want, got := le.Uint32(p[60:]), crc32.Checksum(p[:60], castagnoli); want != got {
		return bad("the header's checksum is %08x, want %08x", got, want)
	}
	if v := le.Uint16(p[8:]); v != CatalogueVersion {
		return 0, cas.Hash{}, nil, fmt.Errorf("it has version %d, this flash reads %d: %w", v, CatalogueVersion, ErrNewer)
	}
	if n := le.Uint16(p[10:]); n != catalogueHeaderBytes || le.Uint32(p[20:]) != 0 || !bytes.Equal(p[32:60], make([]byte, 28)) {
		return bad("its header has %d bytes, or reserved ones in use", n)
	}
	packCount, entryCount := int64(le.Uint32(p[16:])), le.Uint64(p[24:])
	if entryCount > maxCatalogueBytes || catalogueBytes(packCount, int64(entryCount)) != int64(len(p)) {
		return bad("%d packs and %d entries in %d bytes", packCount, entryCount, len(p))
	}
	trailer := p[len(p)-catalogueTrailerBytes:]
	contentHash = cas.Hash(blake3.Sum256(p[:len(p)-catalogueTrailerBytes]))
	if string(trailer[32:]) != catalogueEndMagic || cas.Hash(trailer[:32]) != contentHash {
		return bad("its bytes hash to %s, the trailer says %s", contentHash, cas.Hash(trailer[:32]))
	}
	packs = make([]Catalogued, packCount)
	entries := make([]pack.Entry, entryCount)
	q := p[catalogueHeaderBytes+packCount*cataloguePackBytes:]
	for i := range entries {
		e := q[i*pack.EntryBytes:]
		entries[i] = pack.Entry{Hash: cas.Hash(e[:32]), Offset: le.Uint32(e[32:]), Bytes: le.Uint32(e[36:])}
	}
	for i := range packs {
		q := p[catalogueHeaderBytes+i*cataloguePackBytes:]
		count := int64(le.Uint32(q[72:]))
		if count > int64(len(entries)) || le.Uint32(q[76:]) != 0 {
			return bad("pack %d has %d entries, %d are left", i, count, len(entries))
		}
		packs[i] = Catalogued{ID: cas.PackID(q[:16]), ContentHash: cas.Hash(q[16:48]), Bytes: int64(le.Uint64(q[48:])),
			PlainBytes: int64(le.Uint64(q[56:])), Created: time.Unix(0, int64(le.Uint64(q[64:]))).UTC(), Entries: entries[:count:count]}
		entries = entries[count:]
		if i > 0 && comparePacks(packs[i-1], packs[i]) >= 0 {
			return bad("packs %d and %d are out of order", i-1, i)
		}
		if err := packs[i].check(); err != nil {
			return 0, cas.Hash{}, nil, err
		}
	}
	if len(entries) > 0 {
		return bad("%d entries are of no pack", len(entries))
	}
	return le.Uint32(p[12:]), contentHash, packs, nil
}
