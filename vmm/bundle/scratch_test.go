//go:build linux

package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testConfig builds with an agent and a kernel of the test's own, so that neither make nor a network is needed.
func testConfig(t *testing.T) Config {
	return Config{
		WorkDir: t.TempDir(), CacheDir: t.TempDir(),
		agent: func() ([]byte, error) { return []byte("agent"), nil },
		getKernel: func(context.Context, *builder) (kernel, error) {
			return kernel{release: "6.1-test", image: bytes.Repeat([]byte("kernel"), 5000), modules: testModules}, nil
		},
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left in %s: %v %v", dir, left, err)
	}
}

func TestScratchIsGoneOnEveryPath(t *testing.T) {
	needRoot(t)
	needTool(t, "mkfs.ext4")
	good := writeTemp(t, dockerSave(t, testImage(t, runtime.GOARCH)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, test := range []struct {
		what    string
		path    string
		name    string
		diskMiB int
		change  func(c *Config)
		want    error
	}{
		{"a bad name", good, "../x", 0, nil, ErrInvalid},
		{"a bad size", good, "x", 1, nil, ErrInvalid},
		{"no image", writeTemp(t, []byte("text")), "x", 0, nil, ErrNotImage},
		{"no agent", good, "x", 0, func(c *Config) { c.agent = func() ([]byte, error) { return nil, errTest } }, errTest},
		{"no kernel", good, "x", 0, func(c *Config) {
			c.getKernel = func(context.Context, *builder) (kernel, error) { return kernel{}, errTest }
		}, errTest},
		{"a full disk", good, "x", 0, func(c *Config) {
			c.getKernel = func(context.Context, *builder) (kernel, error) {
				return kernel{}, fmt.Errorf("write: %w", syscall.ENOSPC)
			}
		}, ErrNoSpace},
		{"cancelled", good, "x", 0, func(c *Config) {
			c.Progress = func(step string, done, _ int64, _ string) {
				if step == "make the root disk" {
					cancel()
				}
			}
		}, context.Canceled},
	} {
		t.Run(test.what, func(t *testing.T) {
			c := testConfig(t)
			if test.change != nil {
				test.change(&c)
			}
			if _, err := Import(ctx, c, test.path, test.name, test.diskMiB); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			wantEmpty(t, c.WorkDir)
		})
	}
}

var errTest = errors.New("a test's own error")

func TestUnknownKindIsRefusedWithTheKnownOnes(t *testing.T) {
	_, err := Build(context.Background(), testConfig(t), "plan9", "x", 0)
	if !errors.Is(err, ErrUnknownKind) || !strings.Contains(err.Error(), "busybox, debian") {
		t.Error(err)
	}
}

func TestScratchOfKilledBuildsIsSweptAndOfRunningOnesIsNot(t *testing.T) {
	dir := t.TempDir()
	running, release, err := openScratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(dir, scratchPrefix+"killed")
	if err := os.MkdirAll(filepath.Join(killed, "root", "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "somebody-else"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, release2, err := openScratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("killed build: %v", err)
	}
	if _, err := os.Stat(running); err != nil {
		t.Errorf("running build: %v", err)
	}
	for _, r := range []func() error{release, release2, release} {
		if err := r(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatIsMountedInScratchIsNotRemoved(t *testing.T) {
	needRoot(t)
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	scratch, release, err := openScratch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(scratch, "root dev")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(precious, at, "", unix.MS_BIND, ""); err != nil {
		unavailable(t, "mount: "+err.Error())
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestCancellingEndsTheChildrenOfAChild(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		// The grandchild holds the fifo open, so reading it ends when the grandchild does.
		_, err := command{name: "sh", pkg: "dash", args: []string{"-c", `(echo up; exec sleep 1000) >"$0" & wait`, fifo}}.run(ctx)
		done <- err
	}()
	f, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 10)
	if n, err := f.Read(buf); string(buf[:n]) != "up\n" || err != nil {
		t.Fatal(string(buf[:n]), err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := f.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("the grandchild lives on: %d %v", n, err)
	}
}

func TestAFailedChildSaysWhy(t *testing.T) {
	_, err := command{name: "sh", pkg: "dash", args: []string{"-c", "echo one; echo the reason >&2; exit 3"}}.run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exit status 3: the reason") {
		t.Error(err)
	}
}
