package seal

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenKey is where vms/agent-1 lies under the golden data key.
const goldenKey = "vms/=64b9b72e215495e7e65a3e9915de4b4083ada27b4a44a810570279e7040748cc"

// golden compares with a file in testdata, which older and later versions must agree on.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s isn't what is written today; a new format needs a new version", path)
	}
	return want
}

// goldenPlain is one segment and a little, compressible so that the file's hex is worth reading.
func goldenPlain() []byte { return bytes.Repeat([]byte("flash\n"), (segmentBytes+100)/6) }

func TestObjectsOfVersion1StayReadable(t *testing.T) {
	below, keys := newMem(), testKeys(0x42)
	b := Wrap(below, keys)
	mustPut(t, b, "vms/agent-1", goldenPlain())
	mustPut(t, b, "vms/empty", nil)
	if got := b.ListedKey("vms/agent-1"); got != goldenKey {
		t.Errorf("the stored key is %s, was %s", got, goldenKey)
	}
	for name, c := range map[string]struct {
		key   string
		plain []byte
	}{"v1.sealed": {"vms/agent-1", goldenPlain()}, "v1-empty.sealed": {"vms/empty", nil}} {
		want := golden(t, name, below.object(b.ListedKey(c.key)))
		opened, err := keys.open(want, b.ListedKey(c.key))
		if err != nil || !bytes.Equal(opened, c.plain) {
			t.Errorf("%s: %v, or other bytes", name, err)
		}
	}
}

func TestMarkersOfFormat1StayReadable(t *testing.T) {
	below := newMem()
	secret := passphrase(t, "correct horse battery staple")
	if _, _, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &secret, SlotOptions: quick(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := AddSlot(t.Context(), below, secret, keyFile(t, 2), quick(3)); err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMarker(golden(t, "v1-marker.json", below.object(MarkerKey)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Secret{secret, keyFile(t, 2)} {
		if _, err := m.Open(s); err != nil {
			t.Error(err)
		}
	}
	plain := newMem()
	if _, _, err := CreateMarker(t.Context(), plain, CreateOptions{SlotOptions: quick(1)}); err != nil {
		t.Fatal(err)
	}
	golden(t, "v1-marker-unsealed.json", plain.object(MarkerKey))
	keys := testKeys(0x42)
	golden(t, "v1-export.key", keys.Export(m.ID))
}
