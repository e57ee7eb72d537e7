package local_test

import (
	"bytes"
	"errors"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func TestPacksTravelBetweenStores(t *testing.T) {
	a := mustOpen(t, local.Config{Dir: t.TempDir()})
	b := mustOpen(t, local.Config{Dir: t.TempDir()})
	keyed := mustOpen(t, local.Config{Dir: t.TempDir(), Key: &[32]byte{1}})
	chunks := castest.Chunks(a.Hasher(), 1, 50)
	refs := put(t, a, chunks)
	if err := a.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := a.Packs()[0]
	hash, err := cas.ParseHash(p.Name[:64])
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, p.Bytes)
	if err := a.ReadPack(t.Context(), p.ID, file, 0); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(file); i += 397 {
		spoilt := bytes.Clone(file)
		spoilt[i] ^= 8
		if _, err := b.ImportPack(t.Context(), hash, bytes.NewReader(spoilt), p.Bytes); err == nil {
			t.Fatalf("byte %d flipped, and imported", i)
		}
	}
	if _, err := b.ImportPack(t.Context(), hash, bytes.NewReader(file[:len(file)-1]), p.Bytes); err == nil {
		t.Error("a pack cut short was imported")
	}
	if _, err := keyed.ImportPack(t.Context(), hash, bytes.NewReader(file), p.Bytes); !errors.Is(err, local.ErrWrongKey) {
		t.Errorf("into a keyed store: %v", err)
	}
	lack(t, b, chunks)
	for range 2 { // the second time it is there already
		info, err := b.ImportPack(t.Context(), hash, bytes.NewReader(file), p.Bytes)
		if err != nil || info.ID != p.ID || info.Name != p.Name {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	for _, r := range refs { // the hints hold in the other store
		if _, err := b.Get(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if b.Stats().HintMisses != 0 {
		t.Error("hints are stale in the other store")
	}
	if n, err := b.EvictPack(t.Context(), p.ID); err != nil || n != p.Bytes {
		t.Errorf("evicted %d bytes, %v", n, err)
	}
	lack(t, b, chunks)
	have(t, a, chunks)
}

func TestSealedPacksAreFoundByWhatTheyHave(t *testing.T) {
	s := mustOpen(t, local.Config{Dir: t.TempDir()})
	chunks := castest.Chunks(s.Hasher(), 1, 20)
	put(t, s, chunks)
	if id, ok := s.PackOf(chunks[0].Hash); ok {
		t.Errorf("an open pack: %x", id)
	}
	if err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.Packs()[0]
	if id, ok := s.PackOf(chunks[0].Hash); !ok || id != p.ID {
		t.Errorf("pack %x, %v; want %x", id, ok, p.ID)
	}
	if _, ok := s.PackOf(cas.Hash{1}); ok {
		t.Error("a pack of a chunk that isn't there")
	}
	hash, n, ok := s.PackHash(p.ID)
	if !ok || hash.String()+".pack" != p.Name || n != p.Bytes {
		t.Errorf("%s, %d bytes, %v; want %+v", hash, n, ok, p)
	}
	if _, _, ok := s.PackHash(cas.PackID{1}); ok {
		t.Error("the hash of a pack that isn't there")
	}
	r, err := s.OpenPack(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, local.Config{Dir: t.TempDir()})
	if err := other.ImportPackFrom(t.Context(), hash, r, n); err != nil {
		t.Fatal(err)
	}
	have(t, other, chunks)
}
