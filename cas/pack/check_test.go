package pack_test

import (
	"bytes"
	"errors"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/pack"
)

func TestContentCheckFindsEveryFlippedByte(t *testing.T) {
	var out bytes.Buffer
	b := pack.NewBuilder(&out, pack.Header{ID: cas.PackID{1}})
	enc := pack.NewEncoder(pack.S2)
	for _, c := range castest.Chunks(cas.NewHasher(nil), 1, 5) {
		if _, err := b.Add(enc.AppendRecord(nil, &c)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	check := func(p []byte) error {
		s, err := pack.OpenSealed(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			return err
		}
		return s.CheckContent()
	}
	p := out.Bytes()
	if err := check(p); err != nil {
		t.Fatal(err)
	}
	for i := range p {
		spoilt := bytes.Clone(p)
		spoilt[i] ^= 1
		if err := check(spoilt); !errors.Is(err, pack.ErrDamaged) && !errors.Is(err, pack.ErrUnsupported) {
			t.Fatalf("byte %d of %d flipped: %v", i, len(p), err)
		}
	}
}
