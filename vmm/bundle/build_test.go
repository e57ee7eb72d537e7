//go:build linux

package bundle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// realConfig builds with Debian's own packages, cached where flash itself caches them.
func realConfig(t *testing.T) Config {
	t.Helper()
	c := testConfig(t)
	c.CacheDir, c.getKernel = os.Getenv("FLASH_TEST_CACHE"), nil
	c.Store, _ = openStore(t)
	began := time.Now()
	c.Progress = func(step string, done, total int64, unit string) {
		t.Logf("%6.2fs %s %d/%d %s", time.Since(began).Seconds(), step, done, total, unit)
	}
	return c
}

// buildReal builds a known kind and looks at what every bundle must have.
func buildReal(t *testing.T, kind string) (Result, string) {
	t.Helper()
	needRoot(t)
	ctx := context.Background()
	c := realConfig(t)
	r, err := Build(ctx, c, kind, "", 0)
	if errors.Is(err, ErrDownload) || errors.Is(err, ErrMissingTool) {
		unavailable(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, c.WorkDir)
	t.Logf("%d bytes new, facts %v", r.NewBytes, r.Facts)
	sn, err := c.Store.Snapshot(ctx, r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := os.ReadFile(writeImage(t, sn, "kernel"))
	if err != nil || len(kernel) < 1<<20 {
		t.Errorf("the kernel has %d bytes, %v", len(kernel), err)
	}
	initrd, err := os.ReadFile(writeImage(t, sn, "initrd"))
	if err != nil {
		t.Fatal(err)
	}
	checkModules(t, initrd)
	return r, writeImage(t, sn, "disk0")
}

// checkModules loads the initrd's modules in the order given, as far as dependencies go.
func checkModules(t *testing.T, initrd []byte) {
	t.Helper()
	files := map[string][]byte{}
	for _, e := range decodeCpio(t, initrd) {
		files[e.name] = e.data
	}
	loaded := map[string]bool{}
	for file := range strings.FieldsSeq(string(files["modules.list"])) {
		m, err := readModule(file, files["modules/"+file])
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range m.depends {
			if !loaded[d] && files["modules/"+d+".ko"] != nil {
				t.Errorf("%s is loaded before %s", m.name, d)
			}
		}
		loaded[m.name] = true
	}
	for _, name := range neededModules {
		if !loaded[name] {
			t.Errorf("%s isn't loaded", name)
		}
	}
}

// TestBusyboxIsBuiltFromDebiansPackages takes a network, or a kernel in the cache.
func TestBusyboxIsBuiltFromDebiansPackages(t *testing.T) {
	if !strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Skip("it downloads a kernel; FLASH_REQUIRE=vm runs it")
	}
	_, disk := buildReal(t, "busybox")
	for path, want := range map[string]string{
		"/bin/busybox": "Mode:  0755", "/bin/sh": `link dest: "/bin/busybox"`, "/work/project": "Type: directory",
		"/tmp": "Mode:  01777", "/etc/shadow": "Mode:  0640", "/usr/bin/awk": `link dest: "/bin/busybox"`,
	} {
		if got := debugfs(t, disk, "stat "+path); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %s", path, want, got)
		}
	}
}

// TestDebianIsBuilt takes a minute and a network.
func TestDebianIsBuilt(t *testing.T) {
	if !strings.Contains(os.Getenv("FLASH_REQUIRE"), "debian") {
		t.Skip("it takes a minute; FLASH_REQUIRE=debian runs it")
	}
	_, disk := buildReal(t, "debian")
	for path, want := range map[string]string{
		"/usr/bin/git": "Type: regular", "/usr/bin/make": "Type: regular", "/usr/bin/gcc": "Type: symlink",
		"/usr/bin/python3": "Type: symlink", "/bin": "Type: symlink", "/work/project": "Type: directory",
		"/etc/machine-id": "Size: 0", "/usr/bin/su": "Mode:  04755", "/etc/shadow": "Mode:  0640",
	} {
		if got := debugfs(t, disk, "stat "+path); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %s", path, want, got)
		}
	}
	if got := debugfs(t, disk, "ls /var/cache/apt/archives"); strings.Contains(got, ".deb") {
		t.Errorf("packages are left in the image: %.300s", got)
	}
}

func TestWithoutANetworkOrACacheTheErrorSaysSo(t *testing.T) {
	needRoot(t)
	needTool(t, "apt-get")
	c := realConfig(t)
	c.CacheDir = t.TempDir()
	lists := t.TempDir()
	config := filepath.Join(t.TempDir(), "apt.conf")
	if err := os.WriteFile(config, []byte(`Dir::State::lists "`+lists+`"; Acquire::http::Proxy "http://127.0.0.1:9"; Acquire::https::Proxy "http://127.0.0.1:9"; Acquire::Retries "0";`), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("APT_CONFIG", config)
	_, err := Build(context.Background(), c, "busybox", "x", 0)
	if !errors.Is(err, ErrDownload) {
		t.Errorf("%v", err)
	}
	t.Log(err)
	wantEmpty(t, c.WorkDir)
}
