package pack_test

import (
	"bytes"
	"testing"

	"flash/cas"
	"flash/cas/pack"
)

// What decodes must hash to its name, and encode to a record that decodes to the same.
func FuzzRecord(f *testing.F) {
	for _, codec := range []pack.Codec{pack.Raw, pack.S2, pack.Zstd} {
		for _, c := range sampleChunks()[:4] {
			f.Add(pack.NewEncoder(codec).AppendRecord(nil, &c), true)
		}
	}
	f.Add([]byte{0xC5}, false)
	encoders := []*pack.Encoder{pack.NewEncoder(pack.Raw), pack.NewEncoder(pack.S2), pack.NewEncoder(pack.Zstd)}
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if fix && len(p) > pack.RecordHeaderBytes {
			fixRecord(p) // so that the fuzzer gets past the CRC
		}
		h := cas.NewHasher(nil)
		d := pack.NewDecoder(h)
		plain, r, err := d.AppendPlain(nil, p)
		if err != nil {
			return
		}
		if len(plain) != r.PlainBytes || h.Sum(plain[:r.NamedBytes]) != r.Hash {
			t.Fatalf("served %d bytes for %+v", len(plain), r)
		}
		c := cas.Chunk{Hash: r.Hash, Kind: r.Kind, Named: r.NamedBytes, Data: plain}
		if err := c.Check(); err != nil {
			t.Fatalf("decoded what can't be put: %v", err)
		}
		for _, e := range encoders {
			again, r2, err := d.AppendPlain(nil, e.AppendRecord(nil, &c))
			if err != nil || !bytes.Equal(again, plain) || r2.Hash != r.Hash || r2.NamedBytes != r.NamedBytes {
				t.Fatalf("%+v does not come back: %+v, %v", r, r2, err)
			}
		}
	})
}

// No file makes opening, listing, scanning or verifying panic or read beyond it.
func FuzzPack(f *testing.F) {
	for _, codec := range []pack.Codec{pack.Raw, pack.S2, pack.Zstd} {
		p := build(f, codec, sampleChunks()[:4])
		f.Add(p)
		f.Add(p[:len(p)-pack.TrailerBytes])
		f.Add(p[:len(p)/2])
	}
	f.Add(build(f, pack.Raw, nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := bytes.NewReader(p)
		size := int64(len(p))
		st, err := pack.Scan(r, size, func(fd pack.Found) error {
			if _, err := pack.CheckRecord(fd.Whole); err != nil {
				t.Fatalf("scan gave a bad record: %v", err)
			}
			return nil
		})
		if err != nil || st.End > max(size, pack.HeaderBytes) {
			t.Fatalf("scan: %+v, %v", st, err)
		}
		s, err := pack.OpenSealed(r, size)
		if err != nil {
			return
		}
		if s.Trailer.Bytes() != size {
			t.Fatalf("opened %d bytes as %d", size, s.Trailer.Bytes())
		}
		bad := 0
		err = s.Verify(pack.NewDecoder(cas.NewHasher(nil)), func(pack.Entry, error) { bad++ })
		if err == nil && bad == 0 && st.Records != s.Trailer.Entries {
			t.Fatalf("verified %d records, scan finds %d", s.Trailer.Entries, st.Records)
		}
	})
}
