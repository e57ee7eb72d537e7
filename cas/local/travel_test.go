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
