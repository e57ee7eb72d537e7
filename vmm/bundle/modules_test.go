package bundle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// makeModule writes the smallest ELF file with a .modinfo section.
func makeModule(info string) []byte {
	const names = "\x00.modinfo\x00.shstrtab\x00"
	le := binary.LittleEndian
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	infoAt := 64
	namesAt := infoAt + len(info)
	headersAt := namesAt + len(names)
	for _, v := range []any{uint16(1), uint16(62), uint32(1), uint64(0), uint64(0), uint64(headersAt), uint32(0),
		uint16(64), uint16(0), uint16(0), uint16(64), uint16(3), uint16(2)} {
		binary.Write(&b, le, v)
	}
	b.WriteString(info + names)
	b.Write(make([]byte, 64))
	for _, s := range [][3]int{{1, infoAt, len(info)}, {10, namesAt, len(names)}} {
		kind := uint32(1) // PROGBITS
		if s[0] == 10 {
			kind = 3 // STRTAB
		}
		for _, v := range []any{uint32(s[0]), kind, uint64(0), uint64(0), uint64(s[1]), uint64(s[2]), uint32(0), uint32(0), uint64(1), uint64(0)} {
			binary.Write(&b, le, v)
		}
	}
	return b.Bytes()
}

func TestModulesSayWhatTheyDependOn(t *testing.T) {
	m, err := readModule("kernel/drivers/net/virtio-net.ko", makeModule("license=GPL\x00depends=net_failover,virtio-ring\x00name=virtio_net\x00"))
	if err != nil {
		t.Fatal(err)
	}
	if m.name != "virtio_net" || m.file != "virtio-net.ko" || strings.Join(m.depends, " ") != "net_failover virtio_ring" {
		t.Errorf("%+v", m)
	}
	if m, err = readModule("a.ko", makeModule("depends=\x00")); err != nil || len(m.depends) != 0 {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := readModule("a.ko", []byte("no ELF")); err == nil {
		t.Error("what isn't a module was accepted")
	}
}

func TestEveryModuleLoadsAfterWhatItNeeds(t *testing.T) {
	depends := map[string]string{
		"net": "failover ring virtio", "failover": "core", "core": "", "ring": "", "virtio": "ring", "blk": "virtio ring",
		"loop1": "loop2", "loop2": "loop1", "broken": "missing", "withbuiltin": "crc",
	}
	find := func(name string) (module, bool, error) {
		if name == "crc" {
			return module{}, false, nil // built in
		}
		d, ok := depends[name]
		if !ok {
			return module{}, false, errors.New("not there")
		}
		return module{name: name, depends: strings.Fields(d)}, true, nil
	}
	for _, test := range []struct{ wanted, want, err string }{
		{"blk net", "ring virtio blk core failover net", ""},
		{"net net blk", "core failover ring virtio net blk", ""},
		{"withbuiltin", "withbuiltin", ""},
		{"loop1", "", "depends on itself"},
		{"broken", "", "missing, needed by broken"},
	} {
		got, err := loadOrder(strings.Fields(test.wanted), find)
		var names []string
		for _, m := range got {
			names = append(names, m.name)
		}
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", test.wanted, err, test.err)
			}
			continue
		}
		if strings.Join(names, " ") != test.want || err != nil {
			t.Errorf("%s: %v %v, want %s", test.wanted, names, err, test.want)
		}
	}
}

func TestCompressedModulesAreUnpacked(t *testing.T) {
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	g.Write([]byte("module"))
	g.Close()
	z, _ := zstd.NewWriter(&zst)
	z.Write([]byte("module"))
	z.Close()
	for name, data := range map[string][]byte{"a.ko": []byte("module"), "a.ko.gz": gz.Bytes(), "a.ko.zst": zst.Bytes()} {
		if got, err := unpackModule(context.Background(), name, data); err != nil || string(got) != "module" {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, err := unpackModule(context.Background(), "a.ko.rot13", nil); err == nil {
		t.Error("an unknown compression was accepted")
	}
	if _, err := unpackModule(context.Background(), "a.ko.gz", gz.Bytes()[:12]); err == nil {
		t.Error("a torn module was accepted")
	}
}

func FuzzReadModule(f *testing.F) {
	f.Add(makeModule("depends=a,b\x00"))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readModule("x.ko", data)
		for _, d := range m.depends {
			if err == nil && (d == "" || strings.ContainsAny(d, ",\x00")) {
				t.Errorf("dependency %q", d)
			}
		}
	})
}
