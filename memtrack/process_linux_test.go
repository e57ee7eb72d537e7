package memtrack_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func TestViewOfAnotherProcessGivesThePagesAsked(t *testing.T) {
	const pages = 8192
	c := memtest.Start(t, pages, true)
	for i := uint64(0); i < pages; i += 256 {
		c.Write(t, i, 256, byte(i/256+1))
	}
	b, err := memtrack.OpenBacked(c.Span())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	t.Run("process", func(t *testing.T) { viewsWhatWasWritten(t, memtrack.NewProcess(c.Span())) })
	t.Run("file", func(t *testing.T) { viewsWhatWasWritten(t, b) })
}

func viewsWhatWasWritten(t *testing.T, m memtrack.Memory) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, share := range []float64{1, 0.5, 0.01, 0} {
		var asked []uint64
		for i := range m.Pages() {
			if r.Float64() < share {
				asked = append(asked, i)
			}
		}
		got := make([]byte, len(asked)*page)
		if err := m.View(t.Context(), asked, got); err != nil {
			t.Fatal(err)
		}
		for i, a := range asked {
			if got[i*page+memtest.WrittenByte] != byte(a/256+1) {
				t.Fatalf("share %v: page %d holds %d", share, a, got[i*page+memtest.WrittenByte])
			}
		}
	}
}

func TestViewRefusesWhatItCantGive(t *testing.T) {
	c := memtest.Start(t, 16, true)
	p := memtrack.NewProcess(c.Span())
	for name, ask := range map[string][]uint64{"outside": {16}, "descending": {3, 2}, "twice": {3, 3}} {
		if err := p.View(t.Context(), ask, make([]byte, len(ask)*page)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := p.View(t.Context(), []uint64{1}, make([]byte, 10)); err == nil {
		t.Error("short buffer: no error")
	}
	c.Kill()
	if err := p.View(t.Context(), []uint64{1}, make([]byte, page)); err == nil {
		t.Error("ended process: no error")
	}
}

func TestMappingsAreReadAsTheKernelWritesThem(t *testing.T) {
	c := memtest.Start(t, 16, true)
	found, err := c.Span().Within()
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	m := found[0]
	if m.Start != c.Span().Start || m.End != c.Span().End || !m.Shared || m.Name != "/memfd:memory-backend-memfd (deleted)" {
		t.Errorf("%+v", m)
	}
	f, err := memtrack.OpenBehind(c.Span().PID, m, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.Write(t, 2, 1, 0x44)
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 2*page+memtest.WrittenByte); err != nil || b[0] != 0x44 {
		t.Errorf("%x, %v", b, err)
	}
	if _, err := (memtrack.Span{PID: c.Span().PID, Start: 4096, End: 8192}).Within(); err == nil {
		t.Error("nothing is mapped there")
	}
}

func TestReadingABackedMemoryAllocatesNothing(t *testing.T) {
	c := memtest.Start(t, 1024, true)
	c.Write(t, 5, 1, 1)
	b, err := memtrack.OpenBacked(c.Span())
	if err != nil {
		t.Fatal(err)
	}
	all := make([]uint64, 1024)
	for i := range all {
		all[i] = uint64(i)
	}
	if err := b.View(t.Context(), all, make([]byte, 1024*page)); err != nil {
		t.Fatal(err)
	}
	found, err := c.Span().Within()
	if err != nil {
		t.Fatal(err)
	}
	f, err := memtrack.OpenBehind(c.Span().PID, found[0], os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 != page {
		t.Errorf("the file holds %d bytes, %v", st.Blocks*512, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	private := memtest.Start(t, 16, false)
	if _, err := memtrack.OpenBacked(private.Span()); !errors.Is(err, memtrack.ErrUnsupported) {
		t.Errorf("private memory: %v", err)
	}
}
