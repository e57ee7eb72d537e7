//go:build linux

package bundle

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"flash/cas/castest"
	"flash/store"
	"flash/vmm/guest"
)

// openStore gives an empty store. It opens only after the chunks' own failures were set.
func openStore(t *testing.T) (*store.Store, *castest.Memory) {
	t.Helper()
	chunks := castest.NewMemory()
	s, err := store.Open(context.Background(), store.Config{Dir: t.TempDir(), Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); chunks.Close() })
	return s, chunks
}

// writeImage copies an image of a snapshot to a file.
func writeImage(t *testing.T, sn *store.Snapshot, name string) string {
	t.Helper()
	ctx := context.Background()
	im, err := sn.Image(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), name)
	f, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(im.Bytes())); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, slotBytes)
	for slot := range im.Slots() {
		if zero, err := im.IsZero(ctx, slot); err != nil {
			t.Fatal(err)
		} else if zero {
			continue
		}
		if err := im.ReadSlot(ctx, slot, buf); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(buf[:min(slotBytes, im.Bytes()-slot*slotBytes)], int64(slot)*slotBytes); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

func TestAnImportedBundleIsInTheStoreWhole(t *testing.T) {
	needRoot(t)
	needTool(t, "mkfs.ext4")
	ctx := context.Background()
	c := testConfig(t)
	c.Store, _ = openStore(t)
	saved := writeTemp(t, dockerSave(t, testImage(t, runtime.GOARCH)))
	r, err := Import(ctx, c, saved, "mine", 64)
	if err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, c.WorkDir)
	named, err := c.Store.Bundle(ctx, "mine")
	if err != nil || named.Snapshot != r.Snapshot || r.NewBytes == 0 || r.DiskMiB != 64 {
		t.Fatalf("%+v %+v %v", named, r, err)
	}
	sn, err := c.Store.Snapshot(ctx, r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	meta := sn.Meta()
	for key, want := range map[string]string{
		FactSource: "import", FactKernel: "6.1-test", FactArch: runtime.GOARCH, FactDiskMiB: "64", FactProtocol: strconv.Itoa(guest.Protocol),
		FactMemMiB: "512", FactVCPUs: "1", FactImageRef: "test/image:1",
	} {
		if meta.Facts[key] != want {
			t.Errorf("%s: %q, want %q", key, meta.Facts[key], want)
		}
	}
	config, err := ReadImageConfig(ctx, sn)
	if err != nil || config.WorkingDir != "/srv" || len(config.Env) != 2 {
		t.Errorf("%+v %v", config, err)
	}
	kernel, err := os.ReadFile(writeImage(t, sn, "kernel"))
	if err != nil || !bytes.Equal(kernel, bytes.Repeat([]byte("kernel"), 5000)) {
		t.Errorf("the kernel: %d bytes, %v", len(kernel), err)
	}
	initrd, err := os.ReadFile(writeImage(t, sn, "initrd"))
	if err != nil || len(decodeCpio(t, initrd)) < len(testModules) {
		t.Errorf("the initrd: %d bytes, %v", len(initrd), err)
	}
	disk := writeImage(t, sn, "disk0")
	if out, err := exec.Command(needTool(t, "e2fsck"), "-fn", disk).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := debugfs(t, disk, "cat /bin/tool"); !bytes.HasSuffix([]byte(got), []byte("tool")) {
		t.Errorf("/bin/tool: %q", got)
	}

	again, err := Import(ctx, c, saved, "again", 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("new bytes: %d, then %d", r.NewBytes, again.NewBytes)
	if again.NewBytes > r.NewBytes/2 {
		t.Errorf("the same files again cost %d bytes after %d", again.NewBytes, r.NewBytes)
	}
}

func TestAFailingStoreLeavesNeitherABundleNorScratch(t *testing.T) {
	needRoot(t)
	needTool(t, "mkfs.ext4")
	ctx := context.Background()
	saved := writeTemp(t, dockerSave(t, testImage(t, runtime.GOARCH)))
	for n := 1; ; n++ {
		c := testConfig(t)
		var chunks *castest.Memory
		c.Store, chunks = openStore(t)
		chunks.FailAt(n, errTest)
		_, err := Import(ctx, c, saved, "x", 32)
		wantEmpty(t, c.WorkDir)
		if err == nil {
			if n < 3 {
				t.Fatalf("only %d operations could fail", n-1)
			}
			return
		}
		if !errors.Is(err, errTest) {
			t.Fatalf("operation %d: %v", n, err)
		}
		if _, err := c.Store.Bundle(ctx, "x"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("operation %d failed and there is a bundle: %v", n, err)
		}
	}
}

func TestBundlesThatShareFilesShareChunks(t *testing.T) {
	needRoot(t)
	needTool(t, "mkfs.ext4")
	ctx := context.Background()
	c := testConfig(t)
	s, chunks := openStore(t)
	c.Store = s
	program := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{2}).Read(program)
	build := func(name string, extra int) {
		t.Helper()
		_, err := c.produce(ctx, name, 64, func(ctx context.Context, b *builder) (tree, error) {
			dir := filepath.Join(b.scratch, "root")
			for at, data := range map[string][]byte{"bin/program": program, "own/" + name: bytes.Repeat([]byte(name), extra)} {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(at)), 0o755); err != nil {
					return tree{}, err
				}
				if err := os.WriteFile(filepath.Join(dir, at), data, 0o755); err != nil {
					return tree{}, err
				}
			}
			return tree{dir: dir, diskMiB: 64}, finishTree(dir)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	build("one", 5000)
	first := chunks.Len()
	build("two", 90000)
	second := chunks.Len() - first
	t.Logf("%d chunks, then %d more", first, second)
	if blocks := len(program) / slotBytes; first < blocks || second > 200 {
		t.Errorf("%d chunks of %d blocks, then %d more", first, blocks, second)
	}
}
