package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"flash/cas/bucket"
)

// FuzzOpen gives arbitrary bytes for an object: only what was sealed opens, to what was sealed.
func FuzzOpen(f *testing.F) {
	keys := testKeys(0x42)
	stored := keys.storedKey("vms/agent-1")
	genuine, err := os.ReadFile(filepath.Join("testdata", "v1.sealed"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(genuine)
	f.Add(genuine[:headerBytes+sealedSegBytes])
	f.Add(genuine[:minSealedBytes])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		below := newMem()
		below.set(stored, bytes.Clone(sealed))
		b := Wrap(below, keys)
		rangeErr := b.GetRange(t.Context(), stored, make([]byte, 100), segmentBytes-50)
		opened, _, err := b.Get(t.Context(), stored, 1<<30)
		if bytes.Equal(sealed, genuine) {
			if err != nil || rangeErr != nil || !bytes.Equal(opened, goldenPlain()) {
				t.Fatalf("what was sealed doesn't open: %v, %v", err, rangeErr)
			}
			return
		}
		for _, err := range []error{err, rangeErr} {
			if err == nil && !bytes.HasPrefix(sealed, genuine[:headerBytes+sealedSegBytes]) {
				t.Fatal("bytes that were never sealed open")
			}
			if err != nil && !errors.Is(err, bucket.ErrIntegrity) && !errors.Is(err, errVersion) && !errors.Is(err, bucket.ErrShort) {
				t.Fatalf("an error without a kind: %v", err)
			}
		}
		if err == nil {
			t.Fatal("a whole object opens that was never sealed")
		}
	})
}

// FuzzMarker: a marker that is read can be written and read again, and its parameters are within bounds.
func FuzzMarker(f *testing.F) {
	for _, name := range []string{"v1-marker.json", "v1-marker-unsealed.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"flash":"remote","format":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := DecodeMarker(text)
		if err != nil {
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrFuture) && !errors.Is(err, ErrMarker) {
				t.Fatalf("an error without a kind: %v", err)
			}
			return
		}
		if m.Seal != nil {
			for _, s := range m.Seal.Slots {
				if s.Argon2id != nil && (s.Argon2id.MemoryKiB > maxArgonKiB || s.Argon2id.Time > maxArgonTime) {
					t.Fatalf("%+v", s.Argon2id)
				}
			}
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if m2, err := DecodeMarker(again); err != nil || m2.ID != m.ID {
			t.Fatalf("what was written isn't read: %v", err)
		}
	})
}

// FuzzKeyFile: what is taken for a key file is written as the same key.
func FuzzKeyFile(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "v1-export.key"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("FLASH-KEY-1 AAAA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := parseKeyFile(text)
		if err != nil {
			return
		}
		if again, err := parseKeyFile(keyFileText(key)); err != nil || *again != *key {
			t.Fatalf("%v", err)
		}
	})
}
