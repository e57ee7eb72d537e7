package bundle

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needRoot skips where files of any owner can't be made, unless FLASH_REQUIRE says that this must not be.
func needRoot(t *testing.T) {
	t.Helper()
	if err := checkHost(); err != nil {
		unavailable(t, err.Error())
	}
}

func unavailable(t *testing.T, why string) {
	t.Helper()
	if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Fatal(why)
	}
	t.Skip(why)
}

// newBuilder gives a builder with scratch of the test's own.
func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{scratch: t.TempDir(), cache: t.TempDir(), step: func(step string, done, total int64, unit string) {
		t.Logf("%s %d/%d %s", step, done, total, unit)
	}}
	if dir := os.Getenv("FLASH_TEST_CACHE"); dir != "" { // packages fetched before, to work offline
		b.cache = dir
	}
	return b
}

// TestTryBuild measures.
func TestTryBuild(t *testing.T) {
	out := os.Getenv("FLASH_TRY")
	if out == "" {
		t.Skip()
	}
	b := newBuilder(t)
	ctx := context.Background()
	at := time.Now()
	lap := func(what string) { t.Logf("%-20s %v", what, time.Since(at).Round(time.Millisecond)); at = time.Now() }
	k, err := b.kernel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lap("kernel")
	for _, m := range k.modules {
		t.Log(m.file, m.depends, len(m.data))
	}
	agent, err := os.ReadFile(os.Getenv("FLASH_TRY_AGENT"))
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := buildInitrd(agent, k.modules)
	if err != nil {
		t.Fatal(err)
	}
	lap("initrd")
	make := b.busyboxTree
	if os.Getenv("FLASH_TRY_KIND") == "debian" {
		make = b.debianTree
	}
	tr, err := make(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lap("tree")
	disk := filepath.Join(out, "disk0")
	os.Remove(disk)
	if err := b.makeExt4(ctx, tr.dir, disk, tr.diskMiB); err != nil {
		t.Fatal(err)
	}
	lap("ext4")
	s, err := openSparse(ctx, disk)
	if err != nil {
		t.Fatal(err)
	}
	lap("scan")
	t.Log(k.release, k.version, len(k.image), len(initrd), tr, s.slots*4, "KiB", len(s.runs), "runs")
	os.WriteFile(filepath.Join(out, "kernel"), k.image, 0o644)
	os.WriteFile(filepath.Join(out, "initrd"), initrd, 0o644)
}
