package ext4fs

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write the golden disks anew")

// golden gives one of two disks, of which the second has un-replayed transactions, checksums and all.
func golden(t testing.TB, name string) disk {
	t.Helper()
	p, err := os.ReadFile("testdata/" + name + ".img.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	d, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// goldenChanges is what differs between the golden disks.
var goldenChanges = []string{"- /old 3", "+ /srv/ 0", "+ /srv/name 9"}

func TestGoldenDisksDifferAsEver(t *testing.T) {
	if *update {
		j := makeJournaled(t, "mkdir srv", "symlink srv/name elsewhere", "rm old")
		j.debug("jo -c -v 3", j.write(j.after, j.blocks, ""), "jc")
		for name, d := range map[string]disk{"before": j.before, "after": j.disk()} {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
			z.Write(d)
			z.Close()
			if err := os.WriteFile("testdata/"+name+".img.gz", b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(t, golden(t, "before"), golden(t, "after"), goldenChanges...)
}

// FuzzCompare damages a disk: patches are 4 bytes of block, 2 bytes of place, 1 byte of length and so many bytes. The
// checksums of the journal are left out, since no damage would get past them.
func FuzzCompare(f *testing.F) {
	before, after := golden(f, "before"), golden(f, "after")
	var used []uint64 // blocks where damage does something
	for n := range uint64(len(after) / blockBytes) {
		p := after[n*blockBytes : (n+1)*blockBytes]
		if bytes.Equal(p, zeroBlock) {
			continue
		}
		used = append(used, n)
		if binary.BigEndian.Uint32(p) == journalMagic && binary.BigEndian.Uint32(p[4:]) == typeSuperV2 {
			p[0x2B] &^= journalCsumV3 | journalCsumV2
		}
	}
	f.Add([]byte{})
	for i := range used {
		f.Add([]byte{0, 0, 0, byte(i), 0, 4, 4, 255, 255, 255, 255})
		f.Add([]byte{0, 0, 0, byte(i), 4, 0x28, 8, 1, 0, 0, 0, 5, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, patches []byte) {
		d := slices.Clone(after)
		for len(patches) > 7 {
			block := used[int(binary.BigEndian.Uint32(patches))%len(used)]
			at, n := int(binary.BigEndian.Uint16(patches[4:]))%blockBytes, int(patches[6])
			patches = patches[7:]
			n = copy(d[int(block)*blockBytes+at:][:min(n, blockBytes-at)], patches)
			patches = patches[n:]
		}
		for _, two := range [][2]disk{{before, d}, {d, before}, {after, d}} {
			_, err := Compare(context.Background(), two[0], two[1], slotsThatDiffer(two[0], two[1]), 100)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("an error of no kind: %v", err)
			}
		}
	})
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x0b\x00\x00\x00\x0c\x00\x01\x02.\x00\x00\x00\x02\x00\x00\x00\xf4\x0f\x02\x02..\x00\x00"))
	f.Add([]byte("\x0b\x00\x00\x00\x0c\x00\x04\x01file\x00\x00\x00\x00\x0c\x00\x00\xde\x01\x02\x03\x04"))
	f.Fuzz(func(t *testing.T, p []byte) {
		list, err := parseEntries(nil, p)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.name == "" || e.name == "." || e.name == ".." || bytes.ContainsAny([]byte(e.name), "/\x00") {
				t.Fatalf("the name %q", e.name)
			}
		}
	})
}
