package dir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"flash/cas/bucket"
	"flash/cas/bucket/dir"
)

const helperEnv = "FLASH_DIR_TEST_INCREMENT"

// TestMain makes the test's program one of several that increment a counter, if told so.
func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		if err := incrementMany(path, os.Getpid()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const eachProcess = 25

// incrementMany also tries to be the first at many keys, and says at which it was.
func incrementMany(path string, who int) error {
	b, err := dir.Open(path)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx := context.Background()
	for i := range eachProcess {
		mine := fmt.Sprint(who)
		_, err := b.Put(ctx, fmt.Sprintf("first/%d", i), strings.NewReader(mine), int64(len(mine)), bucket.Condition{Absent: true})
		if err == nil {
			fmt.Println("won", i)
		} else if !errors.Is(err, bucket.ErrCondition) {
			return err
		}
		for {
			data, v, err := b.Get(ctx, "counter", 100)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(strings.Fields(string(data))[0])
			if err != nil {
				return err
			}
			next := fmt.Appendf(nil, "%d %d.%d", n+1, who, i)
			if _, err := b.Put(ctx, "counter", bytes.NewReader(next), int64(len(next)), bucket.Condition{Match: v}); err == nil {
				break
			} else if !errors.Is(err, bucket.ErrCondition) {
				return err
			}
		}
	}
	return nil
}

func TestConditionsHoldBetweenProcesses(t *testing.T) {
	const processes = 4
	path := t.TempDir()
	b := open(t, path)
	if _, err := b.Put(t.Context(), "counter", strings.NewReader("0 nobody"), 8, bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	var running []*exec.Cmd
	var said [processes]bytes.Buffer
	for i := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), helperEnv+"="+path)
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	wins := 0
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, said[i].String())
		}
		wins += strings.Count(said[i].String(), "won")
	}
	data, _, err := b.Get(t.Context(), "counter", 100)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := strings.Cut(string(data), " "); n != strconv.Itoa(processes*eachProcess) {
		t.Errorf("%d increments were acknowledged, the counter says %s", processes*eachProcess, data)
	}
	if wins != eachProcess {
		t.Errorf("%d processes were told that they were the first, at %d keys", wins, eachProcess)
	}
}

func TestNothingChangesWhileAnotherHoldsTheLock(t *testing.T) {
	path := t.TempDir()
	b := open(t, path)
	v, err := b.Put(t.Context(), "k", strings.NewReader("before"), 6, bucket.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(path, ".flash", "lock")).Lock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Put(ctx, "k", strings.NewReader("after"), 5, bucket.Condition{Match: v}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
	if err := b.Delete(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("delete: %v", err)
	}
	if data, _, err := b.Get(t.Context(), "k", 10); err != nil || string(data) != "before" {
		t.Errorf("reads need no lock: %q, %v", data, err)
	}
	unlock()
	if _, err := b.Put(t.Context(), "k", strings.NewReader("after"), 5, bucket.Condition{Match: v}); err != nil {
		t.Error(err)
	}
}
