package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// commandLimit bounds one command of a real guest's story under emulation.
const commandLimit = 2 * time.Minute

// realFlash is the program as make builds it, with a home that has the bundle busybox. The tests of this package that
// need real guests share one, so that the bundle is built once.
type realFlash struct {
	root string // of the repository
	home string
	env  []string // added to ours
	as   []string // the program with what starts it as somebody else; nil: as we are
}

var shared struct {
	once  sync.Once
	flash *realFlash
	err   error
}

// without skips a test for want of something, unless FLASH_REQUIRE says that everything must be there.
func without(t *testing.T, format string, args ...any) {
	t.Helper()
	if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Fatalf("required: "+format, args...)
	}
	t.Skipf(format, args...)
}

// needGuests gives the shared home, or skips where there can be no real guests; with FLASH_REQUIRE=vm that is a failure.
func needGuests(t *testing.T) *realFlash {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, program := range []string{"qemu-system-x86_64", "make", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = program
		}
	}
	if missing != "" {
		without(t, "real guests need %s", missing)
	} else if testing.Short() {
		t.Skip("real guests take long")
	}
	shared.once.Do(func() { shared.flash, shared.err = openShared() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.flash
}

func openShared() (*realFlash, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("make", "-C", root, "build").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make build: %w: %s", err, out)
	}
	home, err := os.MkdirTemp("", "fl")
	if err != nil {
		return nil, err
	}
	f := &realFlash{root: root, home: home}
	if err := keepPackages(home); err != nil {
		return f, err
	}
	if r := f.try("bundle", "build", "busybox"); r.code != 0 {
		return f, fmt.Errorf("bundle build busybox: %s", r)
	}
	return f, nil
}

// keepPackages makes a home use packages fetched by earlier runs.
func keepPackages(home string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "flash", "packages")
	return errors.Join(os.MkdirAll(cache, 0o755), os.Symlink(cache, filepath.Join(home, "cache")))
}

// endShared ends the shared home's daemon with its machines.
func endShared() {
	if f := shared.flash; f != nil {
		f.try("serve", "--stop")
		os.RemoveAll(f.home)
	}
}

// result is what came of a command.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d after %s\n%s%s", r.code, r.took.Round(time.Millisecond), r.stdout, r.stderr)
}

// try runs flash.
func (f *realFlash) try(args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	program := f.as
	if program == nil {
		program = []string{filepath.Join(f.root, "bin", "flash")}
	}
	return f.finish(exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], args...)...))
}

// shell runs a line as a user types it at the repository's root.
func (f *realFlash) shell(line string) result {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	return f.finish(exec.CommandContext(ctx, "sh", "-c", line))
}

func (f *realFlash) finish(cmd *exec.Cmd) result {
	var out, errOut bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.root, &out, &errOut
	cmd.Env = append(append(os.Environ(), "FLASH_HOME="+f.home), f.env...)
	cmd.WaitDelay = time.Second
	begun := time.Now()
	err := cmd.Run()
	r := result{stdout: out.String(), stderr: errOut.String(), code: cmd.ProcessState.ExitCode(), took: time.Since(begun)}
	if r.code < 0 {
		r.stderr += err.Error()
	}
	return r
}

// must runs flash and wants exit code 0.
func (f *realFlash) must(t *testing.T, args ...string) string {
	t.Helper()
	r := f.try(args...)
	if r.code != 0 {
		t.Fatalf("flash %s: %s", strings.Join(args, " "), r)
	}
	return r.stdout
}
