package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"flash/cas/local"
	"flash/store"
	"flash/vmm/guest"
	"flash/vmm/qemu"
)

// realHost is one host on real QEMU with the busybox bundle, shared by the tests of this package that need a guest.
var realHost struct {
	once sync.Once
	host *Host
	home string
	err  error
	end  func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if realHost.end != nil {
		realHost.end()
	}
	os.Exit(code)
}

// needGuests gives the host of real guests, or skips where there can be none; with FLASH_REQUIRE=vm that is a failure.
func needGuests(t *testing.T) *Host {
	t.Helper()
	_, err := exec.LookPath("qemu-system-x86_64")
	if os.Geteuid() != 0 || err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatalf("real guests are required, and need root and QEMU: uid %d, %v", os.Geteuid(), err)
		}
		t.Skip("real guests need root and QEMU")
	}
	realHost.once.Do(func() { realHost.err = openRealHost() })
	if realHost.err != nil {
		t.Fatal(realHost.err)
	}
	return realHost.host
}

func openRealHost() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	home, err := os.MkdirTemp("", "flash-host-test")
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "flash", "packages") // fetched once, kept over runs
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(cache, filepath.Join(home, "cache")); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	chunks, err := local.Open(ctx, local.Config{Dir: home})
	if err != nil {
		return err
	}
	meta, err := store.Open(ctx, store.Config{Dir: filepath.Join(home, "meta"), Chunks: chunks})
	if err != nil {
		return err
	}
	engine, err := qemu.New(qemu.Config{RunDir: home, Log: log})
	if err != nil {
		return err
	}
	h, err := New(ctx, Config{Store: meta, Engine: engine, Home: home, RunDir: filepath.Join(home, "run"), Log: log})
	if err != nil {
		return err
	}
	realHost.host, realHost.home = h, home
	realHost.end = func() {
		for id := range h.vms {
			h.Remove(context.Background(), RemoveRequest{ID: id, Force: true})
		}
		h.Close(context.Background())
		engine.Close()
		meta.Close()
		chunks.Close()
		os.RemoveAll(home)
	}
	_, err = h.BuildBundle(ctx, BuildRequest{Kind: "busybox"}, nil)
	return err
}

// testVM is one VM of a test, removed at its end.
type testVM struct {
	t  *testing.T
	h  *Host
	id string
}

func runVM(t *testing.T, h *Host, id string, memMiB int) *testVM {
	t.Helper()
	if _, err := h.Create(t.Context(), CreateRequest{ID: id, Bundle: "busybox", MemMiB: memMiB, VCPUs: 1}); err != nil {
		t.Fatal(err)
	}
	return keepVM(t, h, id)
}

func keepVM(t *testing.T, h *Host, id string) *testVM {
	t.Cleanup(func() {
		if err := h.Remove(context.Background(), RemoveRequest{ID: id, Force: true}); err != nil {
			t.Error(err)
		}
	})
	return &testVM{t, h, id}
}

// sh runs a script, wants exit code 0 and gives its output without the last line's end.
func (v *testVM) sh(script string) string {
	v.t.Helper()
	var out, errOut bytes.Buffer
	r, err := v.h.Exec(v.t.Context(), ExecRequest{ID: v.id, Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}}}, guest.Streams{Stdout: &out, Stderr: &errOut})
	if err != nil {
		v.t.Fatalf("%s: sh -c %q: %v", v.id, script, err)
	}
	if r.Code != 0 {
		v.t.Fatalf("%s: sh -c %q: exit code %d: %s", v.id, script, r.Code, errOut.String())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (v *testVM) checkpoint() Checkpoint {
	v.t.Helper()
	c, err := v.h.Checkpoint(v.t.Context(), CheckpointRequest{ID: v.id, Label: "test"})
	if err != nil {
		v.t.Fatal(err)
	}
	return c
}

func (v *testVM) rewind(n int) RewindResult {
	v.t.Helper()
	r, err := v.h.Rewind(v.t.Context(), RewindRequest{ID: v.id, Checkpoint: n})
	if err != nil {
		v.t.Fatal(err)
	}
	return r
}

// stream runs a script and copies its output to w.
func (v *testVM) stream(script string, w io.Writer) error {
	r, err := v.h.Exec(context.WithoutCancel(v.t.Context()), ExecRequest{ID: v.id, Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}}}, guest.Streams{Stdout: w})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit code %d", r.Code)
	}
	return err
}
