package cli

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flash/cas/bucket"
	"flash/cas/bucket/dir"
	"flash/cas/bucket/seal"
)

// objectGoldens are the golden files of every format that lies in a remote, and what must be said of each.
var objectGoldens = []struct {
	file string
	says []string
}{
	{"cas/bucket/seal/testdata/v1-marker.json", []string{"marker of a remote", "argon2id", "key-file"}},
	{"cas/bucket/seal/testdata/v1-marker-unsealed.json", []string{"marker of a remote", "encrypted  false"}},
	{"cas/bucket/seal/testdata/v1.sealed", []string{"encrypted object", "65634"}},
	{"cas/pack/testdata/v1-zstd.pack", []string{"kind           pack", "zstd", "damaged bytes  0"}},
	{"cas/remote/testdata/catalogue-1.golden", []string{"catalogue", "66126f248848c6a7"}},
	{"store/manifest/testdata/history.golden", []string{"history", "name in it", "SNAPSHOT"}},
	{"store/manifest/testdata/snapshot.golden", []string{"snapshot record", "IMAGE"}},
	{"store/manifest/testdata/inner.golden", []string{"node", "chunk"}},
	{"store/manifest/testdata/leaf.golden", []string{"node", "same-filled"}},
	{"store/manifest/testdata/patch.golden", []string{"node", "patch of"}},
	{"store/offsite/testdata/ref-removed.golden", []string{"ref", "agent-1", "removed", "alpha"}},
	{"store/offsite/testdata/ref-zstd.golden", []string{"ref", "epoch", "620 bytes that can't be read"}},
	{"store/offsite/testdata/lease.golden", []string{"lease", "agent-1", "renewed", "pack"}},
	{"store/offsite/testdata/hold.golden", []string{"hold", "agent-1", "snapshot", "pack"}},
	{"store/offsite/testdata/condemned.golden", []string{"condemned", "0011", "STATE"}},
}

// readGolden reads a golden file, of which some are dumps as of hexdump -C.
func readGolden(t *testing.T, file string) []byte {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(p, []byte("00000000  ")) {
		return p
	}
	var plain []byte
	for line := range strings.Lines(string(p)) {
		if len(line) < 10 {
			continue
		}
		digits, _, _ := strings.Cut(line[10:], "|")
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		plain = append(plain, b...)
	}
	return plain
}

func TestDebugReadsEveryKindOfObject(t *testing.T) {
	for _, g := range objectGoldens {
		p := readGolden(t, g.file)
		d, err := dumpObject(p)
		if err != nil {
			t.Errorf("%s: %v", g.file, err)
			continue
		}
		text := dumpText(d)
		for _, s := range g.says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: there is no %q in\n%s", g.file, s, text)
			}
		}
		// Damaged, cut or empty, it is an error or a sentence; never a panic.
		for end := range min(len(p), 200) {
			dumpObject(p[:end])
			flipped := bytes.Clone(p)
			flipped[end] ^= 0xff
			dumpObject(flipped)
		}
	}
	if _, err := dumpObject([]byte("hello")); !errors.Is(err, errNoObject) {
		t.Errorf("no object: %v", err)
	}
}

func TestDebugOpensACopyOfAnEncryptedBucket(t *testing.T) {
	folder := t.TempDir()
	d, err := dir.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	secret, err := seal.Passphrase([]byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	m, keys, err := seal.CreateMarker(t.Context(), d, seal.CreateOptions{Secret: &secret,
		SlotOptions: seal.SlotOptions{Argon2id: seal.Argon2id{Time: 1, MemoryKiB: 8 << 10, Threads: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	history := readGolden(t, "store/manifest/testdata/history.golden")
	if _, err := seal.Wrap(d, keys).Put(t.Context(), "vms/agent-1", bytes.NewReader(history), int64(len(history)), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(exported, keys.Export(m.ID), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(passphrase string) *app {
		return &app{getenv: func(name string) string {
			if name == "FLASH_PASSPHRASE" {
				return passphrase
			}
			return ""
		}}
	}
	for what, c := range map[string]struct {
		passphrase, keyFile string
		says                string
		err                 error
	}{
		"with its passphrase": {"open sesame", "", "kind          history", nil}, "with the exported key": {"", exported, "history", nil},
		"with nothing": {"", "", "", bucket.ErrNotFound}, "with another passphrase": {"open", "", "", seal.ErrPassphrase},
	} {
		got, err := with(c.passphrase).debugObject(t.Context(), folder, c.keyFile, []string{"vms/agent-1"})
		if !errors.Is(err, c.err) || !strings.Contains(dumpText(got), c.says) {
			t.Errorf("%s: %v\n%s", what, err, dumpText(got))
		}
	}
	listed, err := with("").debugObject(t.Context(), folder, "", nil)
	if err != nil || len(listed.Rows) != 2 {
		t.Fatalf("%v: %v", listed.Rows, err)
	}
	shown, err := with("").debugObject(t.Context(), folder, "", []string{listed.Rows[1][2]})
	if err != nil || !strings.Contains(dumpText(shown), "encrypted object") {
		t.Errorf("without a secret: %v\n%s", err, dumpText(shown))
	}
}
