package remote_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
)

var update = flag.Bool("update", false, "write the golden files anew")

// listed is what a catalogue says of some made packs.
func listed(packs []made) []remote.Catalogued {
	var l []remote.Catalogued
	for _, p := range packs {
		c := remote.Catalogued{ID: p.ID, ContentHash: p.ContentHash, Bytes: p.Bytes, Entries: p.Entries,
			Created: time.Unix(1_700_000_000, 5).UTC()}
		for _, ch := range p.chunks {
			c.PlainBytes += int64(len(ch.Data))
		}
		l = append(l, c)
	}
	return l
}

func mustEncode(t testing.TB, packs []remote.Catalogued) []byte {
	t.Helper()
	p, _, err := remote.EncodeCatalogue(7, packs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCatalogueFormatStaysReadable(t *testing.T) {
	p := mustEncode(t, listed(somePacks(t, 1, 2, 3)))
	path := filepath.Join("testdata", "catalogue-1.golden")
	if *update {
		if err := os.WriteFile(path, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, golden) {
		t.Errorf("what is written differs from %s: a new version needs a new number, and the old golden file stays", path)
	}
	keyID, _, packs, err := remote.DecodeCatalogue(golden)
	if err != nil || keyID != 7 || len(packs) != 2 || len(packs[0].Entries) != 3 {
		t.Errorf("key %d, %d packs, %v", keyID, len(packs), err)
	}
}

func TestCatalogueComesBackAsItWas(t *testing.T) {
	for _, n := range []int{0, 1, 5} {
		want := listed(somePacks(t, 2, n, 40))
		p, sum, err := remote.EncodeCatalogue(7, want) // sorts
		if err != nil {
			t.Fatal(err)
		}
		keyID, hash, got, err := remote.DecodeCatalogue(p)
		if err != nil || keyID != 7 || hash != sum || len(got) != n || n > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%d packs: key %d, %v", n, keyID, err)
		}
	}
}

func TestChangedCatalogueIsRefused(t *testing.T) {
	p := mustEncode(t, listed(somePacks(t, 3, 2, 4)))
	for i := range p {
		spoilt := bytes.Clone(p)
		spoilt[i] ^= 1
		if _, _, _, err := remote.DecodeCatalogue(spoilt); !errors.Is(err, remote.ErrCatalogue) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
		if _, _, _, err := remote.DecodeCatalogue(p[:i]); !errors.Is(err, remote.ErrCatalogue) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, _, _, err := remote.DecodeCatalogue(append(bytes.Clone(p), 0)); !errors.Is(err, remote.ErrCatalogue) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestImpossiblePacksAreNotWritten(t *testing.T) {
	for name, spoil := range map[string]func(c *remote.Catalogued){
		"no id":        func(c *remote.Catalogued) { c.ID = cas.PackID{} },
		"no name":      func(c *remote.Catalogued) { c.ContentHash = cas.Hash{} },
		"too short":    func(c *remote.Catalogued) { c.Bytes = 100 },
		"too long":     func(c *remote.Catalogued) { c.Bytes = pack.MaxPackBytes + 1 },
		"out of order": func(c *remote.Catalogued) { c.Entries[0], c.Entries[1] = c.Entries[1], c.Entries[0] },
		"twice":        func(c *remote.Catalogued) { c.Entries[1] = c.Entries[0] },
		"outside":      func(c *remote.Catalogued) { c.Entries[0].Offset = uint32(c.Bytes) },
		"in the head":  func(c *remote.Catalogued) { c.Entries[0].Offset = 3 },
		"empty record": func(c *remote.Catalogued) { c.Entries[0].Bytes = 0 },
	} {
		packs := listed(somePacks(t, 4, 1, 5))
		spoil(&packs[0])
		if _, _, err := remote.EncodeCatalogue(0, packs); !errors.Is(err, remote.ErrCatalogue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	packs := listed(somePacks(t, 4, 1, 5))
	if _, _, err := remote.EncodeCatalogue(0, append(packs, packs[0])); !errors.Is(err, remote.ErrCatalogue) {
		t.Errorf("the same pack twice: %v", err)
	}
}

func TestLongCatalogueIsSplit(t *testing.T) {
	entries := make([]pack.Entry, 100_000) // 4 MB
	parts := remote.SplitCatalogue([]remote.Catalogued{{Entries: entries}, {Entries: entries}, {Entries: entries}, {Entries: entries},
		{Entries: entries}, {}, {Entries: make([]pack.Entry, 1_000_000)}, {}})
	var sizes []int
	for _, p := range parts {
		sizes = append(sizes, len(p))
	}
	if !reflect.DeepEqual(sizes, []int{4, 2, 1, 1}) {
		t.Errorf("parts of %v packs", sizes)
	}
}

// FuzzDecodeCatalogue: what is accepted is what the encoder writes. Checksums are put right first, or nothing but them is tried.
func FuzzDecodeCatalogue(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(mustEncode(f, nil), false)
	f.Add(mustEncode(f, listed(somePacks(f, 5, 2, 3))), false)
	f.Add(mustEncode(f, listed(somePacks(f, 5, 2, 3))), true)
	f.Fuzz(func(t *testing.T, p []byte, asItIs bool) {
		if !asItIs && len(p) >= 64+40 {
			p = bytes.Clone(p)
			binary.LittleEndian.PutUint32(p[60:], crc32.Checksum(p[:60], crc32.MakeTable(crc32.Castagnoli)))
			sum := blake3.Sum256(p[:len(p)-40])
			copy(p[len(p)-40:], sum[:])
		}
		keyID, _, packs, err := remote.DecodeCatalogue(p)
		if err != nil {
			if !errors.Is(err, remote.ErrCatalogue) {
				t.Errorf("not ErrCatalogue: %v", err)
			}
			return
		}
		again, _, err := remote.EncodeCatalogue(keyID, packs)
		if err != nil || !bytes.Equal(again, p) {
			t.Errorf("accepted, and written otherwise: %v", err)
		}
	})
}
