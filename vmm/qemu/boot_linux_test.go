package qemu

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/vmm"
)

const testMemBytes = 256 << 20

// guest is a machine with someone to talk to inside.
type guest struct {
	vmm.Machine
	t     testing.TB
	lines *bufio.Reader
}

func testEngine(t testing.TB, c Config) *Engine {
	t.Helper()
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	e, err := New(c)
	if err != nil {
		needVM(t, err.Error())
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// testContext bounds a test's machines.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func testSpec(t testing.TB) vmm.Spec {
	t.Helper()
	files, err := testGuest()
	if err != nil {
		needVM(t, err.Error())
	}
	return vmm.Spec{VCPUs: 1, MemBytes: testMemBytes, MAC: "52:54:00:00:00:07", Kernel: files[0], Initrd: files[1]}
}

// shortDir is a folder whose path fits into a socket's address, whatever the test is called.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// boot gives a running guest that answers.
func boot(t testing.TB, e *Engine, s vmm.Spec, a vmm.Attach) *guest {
	t.Helper()
	ctx := testContext(t)
	if a.Dir == "" {
		a.Dir = filepath.Join(shortDir(t), "m")
	}
	if a.Console == "" {
		a.Console = filepath.Join(shortDir(t), "console")
	}
	m, err := e.Boot(ctx, s, a)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{Machine: m, t: t, lines: bufio.NewReader(m.Channel())}
	t.Cleanup(func() { g.Close() })
	if err := m.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			data, _ := os.ReadFile(a.Console)
			t.Logf("console of the booted guest:\n%s", data)
		}
	})
	g.wants("hello", count(1))
	return g
}

// ask sends a line and gives the answer.
func (g *guest) ask(limit time.Duration, line string) string {
	g.t.Helper()
	g.Channel().SetDeadline(time.Now().Add(limit))
	defer g.Channel().SetDeadline(time.Time{})
	if _, err := fmt.Fprintln(g.Channel(), line); err != nil {
		g.t.Fatalf("ask %q: %v", line, err)
	}
	answer, err := g.lines.ReadString('\n')
	if err != nil {
		g.t.Fatalf("ask %q: %v; exit %+v", line, err, g.Exit())
	}
	return strings.TrimSpace(answer)
}

func TestMachineBoots(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	began := time.Now()
	g := boot(t, e, testSpec(t), vmm.Attach{})
	t.Logf("booted and answered in %v", time.Since(began))
	if got := g.ask(5*time.Second, "mac"); got != "count 2 52:54:00:00:00:07" {
		t.Errorf("the guest has MAC %q", got)
	}
}

// A service that listens on the host's loopback, trusting it, is no guest's to talk to.
func TestGuestCanNotReachTheHostsLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var reached atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Store(true)
			c.Close()
		}
	}()
	g := boot(t, testEngine(t, Config{PoolSize: -1}), testSpec(t), vmm.Attach{})
	if got := g.ask(30*time.Second, fmt.Sprintf("reach %d", l.Addr().(*net.TCPAddr).Port)); got != "count 2 not reached" || reached.Load() {
		t.Errorf("the guest says %q; the host was reached: %t", got, reached.Load())
	}
}
