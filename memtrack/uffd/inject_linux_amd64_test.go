package uffd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func needInject(t *testing.T) {
	t.Helper()
	if injectReason != nil {
		t.Skip(injectReason)
	}
}

// getpid is what an injected process says it is.
func getpid(pid int) error {
	return inject(context.Background(), pid, func(c caller) error {
		got, err := c.call(unix.SYS_GETPID)
		if err == nil && got != uint64(pid) {
			err = fmt.Errorf("it is process %d", got)
		}
		return err
	})
}

func TestInjectedProcessGoesOnAsIfNothingHadBeen(t *testing.T) {
	needInject(t)
	c := memtest.Start(t, 64, true)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // signals all the time
		for {
			select {
			case <-stop:
				return
			default:
				_ = c.Signal(unix.SIGURG)
				_ = c.Signal(unix.SIGWINCH)
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	want := memtest.HashPages(make([]byte, memtrack.PageBytes))
	for i := range 200 {
		if err := getpid(c.Span().PID); err != nil {
			t.Fatalf("injection %d: %v", i, err)
		}
		if c.Read(t, 3, 1) != want {
			t.Fatal("its memory changed")
		}
	}
}

func TestStoppedProcessStaysStopped(t *testing.T) {
	needInject(t)
	c := memtest.Start(t, 64, true)
	if err := c.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child stops", func() bool { return stateOf(c.Span().PID) == "T" })
	for range 20 {
		if err := getpid(c.Span().PID); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the child is stopped again", func() bool { return stateOf(c.Span().PID) == "T" })
	if err := c.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.Read(t, 3, 1)
}

func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:min(1, len(after))]
}

func TestFailedInjectionGivesEverythingBack(t *testing.T) {
	needInject(t)
	c := memtest.Start(t, 64, true)
	before, err := memtrack.Mappings(c.Span().PID)
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	for range 10 {
		err := inject(t.Context(), c.Span().PID, func(c caller) error {
			if _, err := c.call(unix.SYS_CLOSE, 1<<20); err != unix.EBADF {
				t.Errorf("close of no descriptor: %v", err)
			}
			return bad
		})
		if !errors.Is(err, bad) {
			t.Fatal(err)
		}
	}
	src := memtest.NewSource(65, 0, 1) // of another size
	if _, err := Open(t.Context(), c.Span(), newBase(t, src), Options{}); err == nil {
		t.Error("memory of another size was attached")
	}
	after, err := memtrack.Mappings(c.Span().PID)
	if err != nil || len(after) > len(before)+4 { // a Go process maps some by itself
		t.Errorf("%d mappings, before %d, %v", len(after), len(before), err)
	}
	c.Write(t, 0, 64, 1)
}

func TestInjectionIntoAnEndedProcessIsAnError(t *testing.T) {
	needInject(t)
	c := memtest.Start(t, 64, true)
	c.Kill()
	if err := getpid(c.Span().PID); err == nil {
		t.Error("no error")
	}
	c = memtest.Start(t, 64, true)
	err := inject(t.Context(), c.Span().PID, func(call caller) error {
		if err := c.Signal(unix.SIGKILL); err != nil {
			return err
		}
		eventually(t, "it ends", func() bool { return ended(c.Span().PID) })
		_, err := call.call(unix.SYS_GETPID)
		return err
	})
	if err == nil {
		t.Error("no error")
	}
}
