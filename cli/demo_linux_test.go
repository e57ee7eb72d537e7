package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDemoScriptsDoWhatTheStorySays runs demo 21's scripts in a real busybox, where the fake host only plays along.
func TestDemoScriptsDoWhatTheStorySays(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil || os.Geteuid() != 0 {
		without(t, "it needs a static busybox and root, to chroot")
	}
	if out, err := exec.Command("sh", "-c", "file -L "+busybox+" 2>/dev/null || ldd "+busybox+" 2>&1").CombinedOutput(); err == nil && strings.Contains(string(out), "=>") {
		without(t, "busybox isn't static")
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "dev", "proc/sys/kernel/random"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"bin/busybox": string(program), "proc/sys/kernel/random/uuid": "some-uuid\n", "dev/null": ""} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script string) (string, int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also for the clean-up, when t.Context has ended
		defer cancel()
		out := filepath.Join(t.TempDir(), "out") // a file: the session must not hold us up
		f, err := os.Create(out)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := exec.CommandContext(ctx, "/bin/busybox", "sh", "-c", script)
		cmd.Dir, cmd.Stdout, cmd.Stderr = "/", f, f
		cmd.Env = []string{"PATH=/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		err = cmd.Run()
		if _, ok := err.(*exec.ExitError); err != nil && !ok {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(out)
		return strings.TrimSpace(string(text)), cmd.ProcessState.ExitCode()
	}
	if out, code := run("/bin/busybox --install -s /bin"); code != 0 {
		t.Fatal(out)
	}
	t.Cleanup(func() { run(`kill "$(cat /work/session.pid)"`) })
	expectRun := func(what, script string, code int, parts ...string) string {
		t.Helper()
		out, got := run(script)
		if got != code {
			t.Fatalf("%s: exit %d, want %d: %q", what, got, code, out)
		}
		for _, p := range parts {
			if !strings.Contains(out, p) {
				t.Fatalf("%s: no %q in %q", what, p, out)
			}
		}
		return out
	}
	expectRun("project", scriptProject, 0)
	expectRun("session", scriptSession, 0, "some-uuid")
	expectRun("ask", scriptAsk, 0, "some-uuid")
	expectRun("tests", scriptTests, 1, "ok    1 x 1000", "FAIL  2 x 250 less 10%: 499, not 450", "FAIL")
	expectRun("sum", scriptSum, 0, "price.sh")
	before, err := os.ReadFile(filepath.Join(root, "work/project/price.sh"))
	if err != nil {
		t.Fatal(err)
	}
	expectRun("the wrong fix", fixTruncates, 0)
	expectRun("its tests", scriptTests, 1, "FAIL  1 x 101 less 15%: 85, not 86", "ok    2 x 250")
	if err := os.WriteFile(filepath.Join(root, "work/project/price.sh"), before, 0o644); err != nil {
		t.Fatal(err)
	}
	expectRun("the right fix", fixRounds, 0)
	if out := expectRun("its tests", scriptTests, 0); strings.Contains(out, "FAIL") {
		t.Error(out)
	}
	expectRun("the mistake", scriptMistake, 0)
	expectRun("notes", scriptNotes, 0)
	if out, code := run(scriptTests); code == 0 || code == 1 {
		t.Errorf("after the mistake the tests exit with %d: %q", code, out)
	}
	if left, _ := os.ReadDir(filepath.Join(root, "work/project")); len(left) > 0 {
		t.Errorf("the mistake left %v", left)
	}
	if out, code := run("cd /work && timeout 1 sh -c 'echo what > ask; cat answer'"); code == 0 {
		t.Errorf("the session survived the mistake: %q", out)
	}
}
