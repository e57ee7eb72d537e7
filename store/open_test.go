package store

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas/castest"
)

const lockDirVariable = "STORE_TEST_LOCK_DIR"

// TestMain lets this binary be the other process that has the store open, until its stdin ends.
func TestMain(m *testing.M) {
	playOther()
	dir := os.Getenv(lockDirVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := Open(context.Background(), Config{Dir: dir, Chunks: castest.NewMemory()})
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString("open\n")
	bufio.NewReader(os.Stdin).ReadString('\n')
	s.Close()
}

func TestASecondProcessIsRefused(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), lockDirVariable+"="+dir)
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	if _, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory()}); !errors.Is(err, ErrLocked) {
		t.Errorf("opened beside another process: %v", err)
	}
	stdin.Close()
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, dir, castest.NewMemory())
	if _, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory()}); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	s.Close()
}

func TestAnotherFormatIsRefused(t *testing.T) {
	ctx := context.Background()
	for name, spoil := range map[string]func(*badger.Txn) error{
		"newer":   func(tx *badger.Txn) error { return tx.Set([]byte(formatKey), []byte("2")) },
		"missing": func(tx *badger.Txn) error { return tx.Delete([]byte(formatKey)) },
	} {
		dir := t.TempDir()
		s := reopen(t, dir, castest.NewMemory())
		newVM(t, s, "vm")
		if err := s.update(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory()}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseWaitsForOpenTransactions(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	txn, err := s.Begin(ctx, SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for { // until Close has begun
		late, err := s.Begin(ctx, SnapshotID{})
		if errors.Is(err, ErrClosed) {
			break
		}
		late.Abort()
	}
	if _, err := txn.PutBytes(ctx, "state", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(ctx, Meta{Kind: "checkpoint"}, Move{VM: "vm", ExpectHead: -1}); err != nil {
		t.Fatalf("a transaction that was open when Close began: %v", err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := s.VM(ctx, "vm"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// A power cut may leave logs that were made and have no length yet; Badger alone refuses to open over them.
func TestEmptyLogsAreNoDamage(t *testing.T) {
	dir, m := t.TempDir(), castest.NewMemory()
	s := reopen(t, dir, m)
	newVM(t, s, "a")
	s.Close()
	for _, name := range []string{"00077.mem", "000077.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = reopen(t, dir, m)
	if _, err := s.VM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
