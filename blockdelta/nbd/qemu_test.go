package nbd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// qemuTool gives a runner of one of QEMU's own tools, which speak the protocol as a machine process does.
func qemuTool(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatal(err)
		}
		t.Skipf("no %s here (Debian: qemu-utils)", name)
	}
	return func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "failed") { // qemu-io reports a wrong pattern and exits with 0
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
}

func TestQEMUReadsBackWhatItWrote(t *testing.T) {
	io := qemuTool(t, "qemu-io")
	s, o, path := serve(t, zeroBase{blocks: 1024})
	url := "nbd+unix:///disk0?socket=" + path
	io("-f", "raw", "-t", "none",
		"-c", "write -P 0xab 0 1M", "-c", "write -P 0xcd 1000 3000", "-c", "aio_write -P 7 2M 64k", "-c", "aio_write -P 8 2560k 64k",
		"-c", "aio_flush", "-c", "flush", "-c", "write -z 8k 12k", "-c", "discard 512k 128k", "-c", "write -f -P 9 3M 512", url)
	if s.InFlight() != 0 {
		t.Fatalf("%d requests in flight", s.InFlight())
	}
	d, err := o.Cut(t.Context())
	must(t, err)
	d.Rollback()
	io("-r", "-f", "raw", "-c", "read -P 0xab 0 1000", "-c", "read -P 0xcd 1000 3000", "-c", "read -P 0xab 4000 4192",
		"-c", "read -P 0 8k 12k", "-c", "read -P 0xab 20k 492k", "-c", "read -P 0 512k 128k", "-c", "read -P 0xab 640k 384k",
		"-c", "read -P 7 2M 64k", "-c", "read -P 8 2560k 64k", "-c", "read -P 9 3M 512", "-c", "read -P 0 3146240 1k", url)
}

func TestQEMUConvertsAWholeDisk(t *testing.T) {
	img := qemuTool(t, "qemu-img")
	_, _, path := serve(t, zeroBase{blocks: 4096})
	url := "nbd+unix:///disk0?socket=" + path
	if out := img("info", "--output=json", url); !strings.Contains(out, `"virtual-size": 16777216`) {
		t.Fatalf("info: %s", out)
	}
	source := filepath.Join(filepath.Dir(path), "source")
	p := make([]byte, 16<<20)
	for i := 0; i < len(p); i += 3 << 12 {
		p[i] = byte(i>>12) | 1
	}
	must(t, os.WriteFile(source, p, 0o600))
	img("convert", "-n", "-f", "raw", "-O", "raw", source, url)
	img("compare", "-f", "raw", "-F", "raw", source, url)
	img("bench", "-f", "raw", "-c", "2000", "-d", "32", "-s", "4096", "-w", "--flush-interval=100", url)
}
