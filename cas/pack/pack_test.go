package pack_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/pack"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var header = pack.Header{ID: cas.PackID{1, 2, 3}, KeyID: 0, Created: time.Unix(1_700_000_000, 5).UTC()}

// sampleChunks are the same on every run: compressible, incompressible, tiny, annotated, as long as allowed.
func sampleChunks() []cas.Chunk {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, cas.SlotBytes)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	text := bytes.Repeat([]byte("checkpoint "), 400)[:cas.SlotBytes]
	chunks := []cas.Chunk{
		{Kind: cas.KindData, Data: text},
		{Kind: cas.KindData, Data: noise},
		{Kind: cas.KindSnapshot, Data: []byte{0xC5}},
		{Kind: cas.KindNode, Data: append(slices.Clone(noise[:320]), make([]byte, 500)...), Named: 320},
		{Kind: cas.KindData, Data: bytes.Repeat([]byte("a megabyte of it"), cas.MaxChunkBytes/16)},
	}
	h := cas.NewHasher(nil)
	for i := range chunks {
		chunks[i].Hash = h.Sum(chunks[i].Data[:chunks[i].NamedBytes()])
	}
	return chunks
}

// build makes a sealed pack.
func build(t testing.TB, codec pack.Codec, chunks []cas.Chunk) []byte {
	t.Helper()
	var out bytes.Buffer
	b := pack.NewBuilder(&out, header)
	enc := pack.NewEncoder(codec)
	for i := range chunks {
		if _, err := b.Add(enc.AppendRecord(nil, &chunks[i])); err != nil {
			t.Fatal(err)
		}
	}
	if _, tr, err := b.Finish(); err != nil || tr.Bytes() != int64(out.Len()) {
		t.Fatalf("sealed %d bytes, wrote %d: %v", tr.Bytes(), out.Len(), err)
	}
	return out.Bytes()
}

// openRecords gives the offset and end of every record of a sealed pack.
func openRecords(t testing.TB, p []byte) []pack.Entry {
	t.Helper()
	s, err := pack.OpenSealed(bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := s.Entries()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b pack.Entry) int { return int(a.Offset) - int(b.Offset) })
	return entries
}

func TestEveryCodecGivesTheChunksBack(t *testing.T) {
	for _, codec := range []pack.Codec{pack.Raw, pack.S2, pack.Zstd} {
		chunks := sampleChunks()
		p := build(t, codec, chunks)
		d := pack.NewDecoder(cas.NewHasher(nil))
		for i, e := range openRecords(t, p) {
			plain, r, err := d.AppendPlain([]byte("before"), p[e.Offset:])
			if err != nil || !bytes.Equal(plain, append([]byte("before"), chunks[i].Data...)) {
				t.Fatalf("%s: chunk %d: %d bytes, %v", codec, i, len(plain), err)
			}
			if r.Kind != chunks[i].Kind || r.NamedBytes != chunks[i].NamedBytes() || r.Hash != chunks[i].Hash {
				t.Errorf("%s: chunk %d came back as %+v", codec, i, r)
			}
			wantCodec := codec
			if i == 1 || i == 2 { // noise, and a single byte
				wantCodec = pack.Raw
			}
			if r.Codec != wantCodec {
				t.Errorf("%s: chunk %d is stored as %s, want %s", codec, i, r.Codec, wantCodec)
			}
		}
	}
}

// A flipped bit anywhere in a record is refused; in an annotation too, which no hash covers.
func TestFlippedBitIsNeverServed(t *testing.T) {
	d := pack.NewDecoder(cas.NewHasher(nil))
	for _, c := range sampleChunks()[:4] {
		record := pack.NewEncoder(pack.S2).AppendRecord(nil, &c)
		for i := range record {
			for bit := range 8 {
				spoilt := slices.Clone(record)
				spoilt[i] ^= 1 << bit
				if _, _, err := d.AppendPlain(nil, spoilt); err == nil {
					t.Fatalf("kind %d: bit %d of byte %d flipped, and served", c.Kind, bit, i)
				} else if !errors.Is(err, pack.ErrDamaged) && !errors.Is(err, pack.ErrUnsupported) {
					t.Fatalf("kind %d: byte %d: error of no kind: %v", c.Kind, i, err)
				}
			}
		}
	}
}

func TestChunkUnderAWrongNameIsNeverServed(t *testing.T) {
	c := sampleChunks()[0]
	c.Hash[0] ^= 1
	record := pack.NewEncoder(pack.S2).AppendRecord(nil, &c) // the CRC is right
	if _, _, err := pack.NewDecoder(cas.NewHasher(nil)).AppendPlain(nil, record); !errors.Is(err, pack.ErrDamaged) {
		t.Fatalf("got %v, want ErrDamaged", err)
	}
}

func TestAnyCutOfAnOpenPackKeepsTheWholeRecordsBeforeIt(t *testing.T) {
	chunks := sampleChunks()[:4]
	p := build(t, pack.S2, chunks)
	entries := openRecords(t, p)
	for cut := pack.HeaderBytes; cut <= int(entries[3].Offset+entries[3].Bytes); cut++ {
		want := 0
		for _, e := range entries {
			if int(e.Offset+e.Bytes) <= cut {
				want++
			}
		}
		st, err := pack.Scan(bytes.NewReader(p), int64(cut), func(pack.Found) error { return nil })
		if err != nil || st.Records != want || st.DamagedBytes != 0 {
			t.Fatalf("cut at %d: %+v, %v; want %d records", cut, st, err, want)
		}
	}
}

func TestScanFindsRecordsBehindDamage(t *testing.T) {
	chunks := sampleChunks()
	p := build(t, pack.S2, chunks)
	entries := openRecords(t, p)
	clear(p[entries[1].Offset : entries[1].Offset+2000]) // a block that never reached the medium
	var found []cas.Hash
	st, err := pack.Scan(bytes.NewReader(p), int64(len(p)), func(f pack.Found) error {
		found = append(found, f.Hash)
		return nil
	})
	want := []cas.Hash{chunks[0].Hash, chunks[2].Hash, chunks[3].Hash, chunks[4].Hash}
	if err != nil || !slices.Equal(found, want) || st.DamagedBytes != int64(entries[1].Bytes) {
		t.Fatalf("found %v, %+v, %v", found, st, err)
	}
	if st.End != int64(entries[4].Offset+entries[4].Bytes) {
		t.Errorf("the footer counts as records: end %d", st.End)
	}
}

func TestSealingInPlaceMakesWhatTheBuilderMakes(t *testing.T) {
	p := build(t, pack.S2, sampleChunks())
	last := openRecords(t, p)[4]
	end := int64(last.Offset + last.Bytes)
	footer, sum, err := pack.Seal(bytes.NewReader(p), end)
	if err != nil || !bytes.Equal(append(slices.Clone(p[:end]), footer...), p) {
		t.Fatalf("another pack: %v", err)
	}
	s, err := pack.OpenSealed(bytes.NewReader(p), int64(len(p)))
	if err != nil || s.ContentHash != sum {
		t.Fatalf("content hash %s, sealed as %s (%v)", s.ContentHash, sum, err)
	}
	p[last.Offset+60] ^= 1
	if _, _, err := pack.Seal(bytes.NewReader(p), end); !errors.Is(err, pack.ErrDamaged) {
		t.Errorf("a damaged pack was sealed: %v", err)
	}
}

func TestVerifyReportsEveryDamagedRecord(t *testing.T) {
	p := build(t, pack.S2, sampleChunks())
	verify := func(p []byte) (bad []pack.Entry, err error) {
		s, err := pack.OpenSealed(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			return nil, err
		}
		err = s.Verify(pack.NewDecoder(cas.NewHasher(nil)), func(e pack.Entry, _ error) { bad = append(bad, e) })
		return bad, err
	}
	if bad, err := verify(p); err != nil || len(bad) > 0 {
		t.Fatalf("a good pack: %v, %v", bad, err)
	}
	entries := openRecords(t, p)
	spoilt := slices.Clone(p)
	spoilt[entries[0].Offset+50] ^= 4
	spoilt[entries[3].Offset+50] ^= 4
	bad, err := verify(spoilt)
	if len(bad) != 2 || bad[0] != entries[0] || bad[1] != entries[3] || !errors.Is(err, pack.ErrDamaged) {
		t.Errorf("bad %v, error %v", bad, err)
	}
	for i := range pack.HeaderBytes { // bytes no record covers
		spoilt := slices.Clone(p)
		spoilt[i] ^= 1
		if _, err := verify(spoilt); err == nil {
			t.Errorf("byte %d of the header flipped, not noticed", i)
		}
	}
	for i := int(entries[4].Offset + entries[4].Bytes); i < len(p); i++ {
		spoilt := slices.Clone(p)
		spoilt[i] ^= 1
		if _, err := verify(spoilt); err == nil {
			t.Errorf("byte %d of the footer flipped, not noticed", i)
		}
	}
}

func TestResealKeepsWhatIsWantedAndMakesItSmaller(t *testing.T) {
	chunks := sampleChunks()
	p := build(t, pack.S2, chunks)
	s, err := pack.OpenSealed(bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := pack.NewBuilder(&out, pack.Header{ID: cas.PackID{9}, Created: header.Created})
	err = s.Reseal(context.Background(), b, pack.NewRecoder(pack.Zstd, cas.NewHasher(nil)),
		func(e pack.Entry) bool { return e.Hash != chunks[1].Hash })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	d := pack.NewDecoder(cas.NewHasher(nil))
	entries := openRecords(t, out.Bytes())
	if len(entries) != 4 {
		t.Fatalf("%d records, want 4", len(entries))
	}
	for i, c := range []cas.Chunk{chunks[0], chunks[2], chunks[3], chunks[4]} {
		plain, r, err := d.AppendPlain(nil, out.Bytes()[entries[i].Offset:])
		if err != nil || !bytes.Equal(plain, c.Data) || r.NamedBytes != c.NamedBytes() || r.Kind != c.Kind {
			t.Errorf("chunk %d: %+v, %v", i, r, err)
		}
	}
	if r, _ := pack.ParseRecord(out.Bytes()[entries[0].Offset:]); r.Codec != pack.Zstd {
		t.Errorf("the text is stored as %s", r.Codec)
	}
}

// The golden packs were written by version 1 and must be readable for ever. The raw one must also be written the same.
func TestGoldenPacksOfVersion1(t *testing.T) {
	chunks := sampleChunks()[:4]
	for _, codec := range []pack.Codec{pack.Raw, pack.S2, pack.Zstd} {
		name := filepath.Join("testdata", "v1-"+codec.String()+".pack")
		now := build(t, codec, chunks)
		if *update {
			if err := os.WriteFile(name, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if codec == pack.Raw && !bytes.Equal(golden, now) {
			t.Errorf("%s: version 1 is written otherwise now", name)
		}
		s, err := pack.OpenSealed(bytes.NewReader(golden), int64(len(golden)))
		if err != nil || s.Header != header {
			t.Fatalf("%s: %+v, %v", name, s, err)
		}
		d := pack.NewDecoder(cas.NewHasher(nil))
		if err := s.Verify(d, func(e pack.Entry, err error) { t.Error(name, e, err) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, e := range openRecords(t, golden) {
			if plain, _, err := d.AppendPlain(nil, golden[e.Offset:]); err != nil || !bytes.Equal(plain, chunks[i].Data) {
				t.Errorf("%s: chunk %d: %v", name, i, err)
			}
		}
	}
}
