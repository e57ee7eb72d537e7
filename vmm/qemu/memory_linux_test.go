package qemu

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func TestMain(m *testing.M) {
	memtest.Main()
	os.Exit(m.Run())
}

// supports are the ways this host can work in, the best first.
func supports(t *testing.T) map[string]memorySupport {
	best := probeMemory(t.Context())
	return map[string]memorySupport{
		"best":                   best,
		"lazy, hash":             {lazy: best.lazy, shared: best.shared, tracker: "hash-compare"},
		"eager":                  {tracker: "hash-compare"},
		"eager, " + best.tracker: {tracker: best.tracker},
	}
}

func restored(t *testing.T, b *bases, key string, src memtrack.Source, s memorySupport) (*memtest.Child, *guestMemory, *sharedBase) {
	t.Helper()
	base, err := b.get(key, src)
	if err != nil {
		t.Fatal(err)
	}
	c := memtest.Start(t, int(src.Slots()), true)
	c.Write(t, 0, 64, 0xff) // what a firmware had put there; not part of the snapshot
	m, err := openMemory(t.Context(), c.Span().PID, src.Slots()*memtrack.PageBytes, base, "", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		if err := m.close(); err != nil {
			t.Error(err)
		}
		base.release()
	})
	return c, m, base
}

func TestRestoredMemoryIsTheSnapshotInEveryWayOfWorking(t *testing.T) {
	for name, s := range supports(t) {
		t.Run(name, func(t *testing.T) {
			src := memtest.NewSource(1024, 0.4, 1)
			c, m, base := restored(t, newBases(), "", src, s)
			if err := base.prefetch(t.Context(), []uint64{1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			d, err := m.Tracker().Cut(t.Context())
			if err != nil || d.Len() != 0 {
				t.Fatalf("an untouched machine changed %d pages, %v", d.Len(), err)
			}
			d.Commit()
			if err := m.Tracker().Start(m); err != nil {
				t.Errorf("start again: %v", err)
			}
			got := make([]byte, memtrack.PageBytes)
			for page := range src.Slots() {
				if c.Read(t, page, 1) != memtest.HashPages(src.Page(page)) {
					t.Fatalf("the machine reads something else in page %d", page)
				}
				if err := m.View(t.Context(), []uint64{page}, got); err != nil || !bytes.Equal(got, src.Page(page)) {
					t.Fatalf("page %d views as something else, %v", page, err)
				}
			}
			c.Write(t, 5, 3, 0xaa)
			d, err = m.Tracker().Cut(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pages := slices.Collect(d.Slots())
			exact := slices.Equal(pages, []uint64{5, 6, 7})
			if !exact && (s.tracker == "pagemap-scan" || len(memtrack.Union(pages, []uint64{5, 6, 7})) != len(pages)) {
				t.Errorf("changed pages %v, want [5 6 7]", pages)
			}
			d.Rollback()
			if n, err := m.Tracker().Pending(t.Context()); err != nil || n < 3 {
				t.Errorf("after a rollback %d pages are pending, %v", n, err)
			}
			if lazy := m.touched() != nil; lazy != s.lazy {
				t.Errorf("touched pages are known: %t, lazy: %t", lazy, s.lazy)
			}
		})
	}
}

func TestBootedMemoryReportsWhatWasThereAndWhatIsWritten(t *testing.T) {
	for name, s := range supports(t) {
		t.Run(name, func(t *testing.T) {
			const pages = 1024
			c := memtest.Start(t, pages, true)
			c.Write(t, 10, 2, 1) // firmware
			m, err := openMemory(t.Context(), c.Span().PID, pages*memtrack.PageBytes, nil, "", s)
			if err != nil {
				t.Fatal(err)
			}
			defer m.close()
			c.Read(t, 500, 100)
			c.Write(t, 900, 1, 1)
			d, err := m.Tracker().Cut(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer d.Commit()
			want := []uint64{10, 11, 900}
			got := slices.Collect(d.Slots())
			if !slices.Equal(got, want) && (s.tracker != "soft-dirty" || len(memtrack.Union(got, want)) != len(got)) {
				t.Errorf("changed pages %v, want %v", got, want)
			}
			if m.touched() != nil || m.lost() != nil {
				t.Error("a booted machine has no absent pages")
			}
		})
	}
}

func TestMachinesOfOneKeyShareOneBaseUntilTheLastEnds(t *testing.T) {
	s := probeMemory(t.Context())
	if !s.lazy {
		t.Skip(s.reasons)
	}
	src, again := memtest.NewSource(512, 0, 2), memtest.NewSource(512, 0, 2)
	b := newBases()
	c1, m1, base1 := restored(t, b, "snapshot", src, s)
	c2, m2, _ := restored(t, b, "snapshot", again, s)
	c1.Read(t, 0, 256)
	c2.Read(t, 0, 256)
	if n := len(m2.touched()); n != 0 {
		t.Errorf("the second machine brought in %d pages itself", n)
	}
	c1.Kill()
	if err := m1.close(); err != nil {
		t.Fatal(err)
	}
	base1.release()
	src.Fail(func(uint64) error { return errors.New("closed with its machine") })
	if c2.Read(t, 256, 256) == "" || again.Reads.Load() == 0 {
		t.Error("the second machine doesn't read its own source after the first has ended")
	}
	other, err := b.get("other", src)
	if err != nil {
		t.Fatal(err)
	}
	if other.keyed == base1.keyed {
		t.Error("another key shares memory")
	}
	other.release()
	other.release()
	if len(b.byKey) != 1 {
		t.Errorf("%d bases are kept, want the second machine's", len(b.byKey))
	}
}

func TestMemoryOfTheWrongSizeIsRefused(t *testing.T) {
	c := memtest.Start(t, 64, true)
	if _, err := openMemory(context.Background(), c.Span().PID, 65*memtrack.PageBytes, nil, "", memorySupport{tracker: "hash-compare"}); err == nil {
		t.Error("memory of 64 pages was taken for 65")
	} else {
		t.Log(err)
	}
}
