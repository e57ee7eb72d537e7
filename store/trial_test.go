package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas/castest"
)

const (
	tryDirVariable     = "STORE_TEST_TRY_DIR"
	uncleanDirVariable = "STORE_TEST_UNCLEAN_DIR"
)

// playOther lets this binary be the process that tries a database, or one that dies with it open.
func playOther() {
	playCut()
	if dir := os.Getenv(tryDirVariable); dir != "" {
		TryOpen(dir)
		os.Exit(0)
	}
	if dir := os.Getenv(fullDirVariable); dir != "" {
		if err := closeWhenFull(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(uncleanDirVariable); dir != "" {
		s, err := Open(context.Background(), Config{Dir: dir, Chunks: castest.NewMemory()})
		if err == nil {
			err = s.CreateVM(context.Background(), VM{ID: "made before death"}, nil)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0) // without Close
	}
}

// trials opens in another process, as the program does, and counts.
type trials struct {
	count int
	took  time.Duration
}

func (tr *trials) try(ctx context.Context, dir string) error {
	tr.count++
	began := time.Now()
	defer func() { tr.took = time.Since(began) }()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), tryDirVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		words, _, _ := strings.Cut(string(out), "\n")
		return DiedTrying(words)
	}
	return nil
}

func TestOnlyAnUncleanEndIsFollowedByATrial(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "meta")
	tr := &trials{}
	open := func(want int) *Store {
		t.Helper()
		s, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory(), Trial: tr.try})
		if err != nil {
			t.Fatal(err)
		}
		if tr.count != want {
			t.Fatalf("%d trials, want %d", tr.count, want)
		}
		return s
	}
	open(0).Close() // new
	open(0).Close() // ended in order
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), uncleanDirVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := open(1)
	if _, err := s.VM(ctx, "made before death"); err != nil {
		t.Errorf("what was committed before the death: %v", err)
	}
	s.Close()
	open(1).Close()
	t.Logf("the trial took %s", tr.took)
}

// A zeroed footer of a table is the death of whoever opens it.
func TestADatabaseThatKillsItsOpenerIsToldAndKept(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := reopen(t, dir, castest.NewMemory())
	newVM(t, s, "vm")
	s.Close()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table to damage: %v", err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	clear(damaged[len(damaged)-64:])
	if err := os.WriteFile(tables[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, markerName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	tr := &trials{}
	for range 2 {
		if _, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory(), Trial: tr.try}); !errors.Is(err, ErrDatabase) || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("opened a database without a footer: %v", err)
		}
		after := contents(t, dir)
		for path := range after {
			if _, ok := before[path]; !ok { // Badger begins with a new log
				delete(after, path)
			}
		}
		if !maps.Equal(before, after) {
			t.Fatal("a refused Open changed the database's files")
		}
	}
	if err := os.WriteFile(tables[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory(), Trial: tr.try})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.VM(ctx, "vm"); err != nil {
		t.Errorf("with the table put back: %v", err)
	}
}

func TestADatabaseThatIsRefusedIsCalledDamaged(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir, castest.NewMemory())
	newVM(t, s, "vm")
	s.Close()
	if err := os.WriteFile(filepath.Join(dir, "MANIFEST"), []byte("no manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dir: dir, Chunks: castest.NewMemory()}); !errors.Is(err, ErrDatabase) {
		t.Errorf("opened without a manifest: %v", err)
	}
}

// contents reads the files that hold data.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.sst", "*.mem", "*.vlog", "MANIFEST", "KEYREGISTRY", "DISCARD"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(p)
		}
	}
	return all
}
