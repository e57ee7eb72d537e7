package seal

import (
	"bytes"
	"io"
	"testing"

	"flash/cas/bucket"
)

const benchBytes = 16 << 20 // a pack

// BenchmarkPut is CPU per plain byte of a pack: one pass for the salt, one that seals.
func BenchmarkPut(b *testing.B) {
	k := testKeys(1)
	plain := bytes.NewReader(plainOf(benchBytes))
	b.SetBytes(benchBytes)
	for b.Loop() {
		h, err := k.saltOf(b.Context(), "packs/=x", plain, benchBytes)
		if err != nil {
			b.Fatal(err)
		}
		s := newSealer(&k.objectKeys, h, "packs/=x", plain, benchBytes)
		if _, err := io.Copy(io.Discard, io.NewSectionReader(s, 0, s.bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWindow is CPU per plain byte of a window of 256 KiB that is fetched from memory and opened.
func BenchmarkWindow(b *testing.B) {
	below := newMem()
	sealed := Wrap(below, testKeys(1))
	if _, err := sealed.Put(b.Context(), "packs/a", bytes.NewReader(plainOf(benchBytes)), benchBytes, bucket.Condition{}); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 256<<10)
	b.SetBytes(int64(len(dst)))
	offset := int64(0)
	for b.Loop() {
		if err := sealed.GetRange(b.Context(), "packs/a", dst, offset); err != nil {
			b.Fatal(err)
		}
		offset = (offset + int64(len(dst))) % benchBytes
	}
}
