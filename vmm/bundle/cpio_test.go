package bundle

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// decodeCpio is a reader written from the format's description, apart from the writer.
func decodeCpio(t *testing.T, p []byte) []cpioEntry {
	t.Helper()
	var entries []cpioEntry
	for off := 0; ; {
		if len(p)-off < 110 || string(p[off:off+6]) != "070701" {
			t.Fatalf("no header at %d", off)
		}
		field := func(i int) int {
			v, err := strconv.ParseUint(string(p[off+6+8*i:off+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
		e := cpioEntry{mode: uint32(field(1)), major: uint32(field(9)), minor: uint32(field(10))}
		if field(2) != 0 || field(3) != 0 || field(5) != 0 || field(12) != 0 {
			t.Fatalf("owner, time or checksum at %d isn't zero", off)
		}
		nameBytes, dataBytes := field(11), field(6)
		name := p[off+110 : off+110+nameBytes]
		if name[nameBytes-1] != 0 {
			t.Fatalf("name at %d doesn't end in zero", off)
		}
		e.name = string(name[:nameBytes-1])
		start := (off + 110 + nameBytes + 3) / 4 * 4
		if e.name == "TRAILER!!!" {
			if len(p) != start {
				t.Fatalf("%d bytes after the trailer", len(p)-start)
			}
			return entries
		}
		e.data = p[start : start+dataBytes]
		entries = append(entries, e)
		off = (start + dataBytes + 3) / 4 * 4
	}
}

var testModules = []module{
	{name: "virtio_ring", file: "virtio_ring.ko", data: []byte("ring")},
	{name: "virtio", file: "virtio.ko", data: []byte("virtio!")},
	{name: "virtio_rng", file: "virtio-rng.ko", data: []byte("rng")},
}

func TestInitrdIsAsTheKernelAndTheAgentExpectIt(t *testing.T) {
	got, err := buildInitrd([]byte("the agent"), testModules)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]cpioEntry{}
	for _, e := range decodeCpio(t, got) {
		byName[e.name] = e
	}
	if e := byName["init"]; e.mode != cpioFile|0o755 || string(e.data) != "the agent" {
		t.Errorf("init: %o %q", e.mode, e.data)
	}
	if e := byName["modules.list"]; string(e.data) != "virtio_ring.ko\nvirtio.ko\nvirtio-rng.ko\n" {
		t.Errorf("modules.list: %q", e.data)
	}
	for _, m := range testModules {
		if e := byName["modules/"+m.file]; !bytes.Equal(e.data, m.data) {
			t.Errorf("%s: %q", m.file, e.data)
		}
	}
	if e := byName["dev/console"]; e.mode != cpioChar|0o600 || e.major != 5 || e.minor != 1 {
		t.Errorf("dev/console: %+v", e)
	}

	const golden = "testdata/initrd.cpio"
	if *rewrite {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the initrd differs from %s; if that is meant: go test ./vmm/bundle -run Initrd -rewrite", golden)
	}
}

func TestANewAgentLeavesTheBlocksBeforeItAlone(t *testing.T) {
	modules := []module{{file: "big.ko", data: bytes.Repeat([]byte("module "), 10000)}}
	a, err := buildInitrd(bytes.Repeat([]byte("old"), 5000), modules)
	if err != nil {
		t.Fatal(err)
	}
	b, err := buildInitrd(bytes.Repeat([]byte("new agent"), 7000), modules)
	if err != nil {
		t.Fatal(err)
	}
	const whole = 70000 / slotBytes * slotBytes
	if !bytes.Equal(a[:whole], b[:whole]) {
		t.Error("blocks of the modules differ")
	}
}

func TestCpioRefusesWhatTheKernelWouldDrop(t *testing.T) {
	for _, entries := range [][]cpioEntry{
		{{name: "a/b", mode: cpioFile}},
		{{name: "a", mode: cpioFile}, {name: "a/b", mode: cpioFile}},
		{{name: "/a", mode: cpioFile}},
		{{name: "", mode: cpioFile}},
		{{name: strings.Repeat("n", 256), mode: cpioFile}},
	} {
		if _, err := encodeCpio(entries); err == nil {
			t.Errorf("%+v was accepted", entries)
		}
	}
}

func FuzzCpioRoundTrip(f *testing.F) {
	f.Add("init", []byte("x"), uint16(0o755))
	f.Add("a", []byte{}, uint16(0))
	f.Add("name", bytes.Repeat([]byte{7}, 4097), uint16(0o7777))
	f.Fuzz(func(t *testing.T, name string, data []byte, mode uint16) {
		if strings.ContainsAny(name, "/\x00") || name == "TRAILER!!!" {
			t.Skip()
		}
		want := []cpioEntry{{name: name, mode: cpioFile | uint32(mode)&0o7777, data: data}, {name: "d", mode: cpioDir}}
		p, err := encodeCpio(want)
		if err != nil {
			t.Skip()
		}
		if got := decodeCpio(t, p); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	})
}
