package memtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

const childEnv = "FLASH_MEMTEST_CHILD"

// Main becomes the child when this process was started as one, and doesn't return then.
func Main() {
	if mode := os.Getenv(childEnv); mode != "" {
		os.Exit(childMain(mode))
	}
}

// Child is a process with memory. Its methods may be called from many goroutines; each access happens on its own thread
// there, so that one that waits for a page holds up no other.
type Child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	span memtrack.Span
	once sync.Once
	dead chan struct{}

	mu      sync.Mutex // guards the rest
	next    int
	waiting map[int]chan string
}

// Start starts a child with n pages: shared memory as a QEMU memory-backend-memfd, or private anonymous memory.
// It ends with the test.
func Start(t testing.TB, pages int, shared bool) *Child {
	t.Helper()
	return StartAs(t, pages, shared, nil)
}

// StartAs starts a child as another user; nil: as ours.
func StartAs(t testing.TB, pages int, shared bool, user *syscall.Credential) *Child {
	t.Helper()
	mode := fmt.Sprintf("%d %t", pages, shared)
	c := &Child{cmd: exec.Command("/proc/self/exe"), waiting: map[int]chan string{}, dead: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+mode, "GOGC=off")
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", first, err)
	}
	c.span.PID = c.cmd.Process.Pid
	if _, err := fmt.Sscanf(first, "%d %d", &c.span.Start, &c.span.End); err != nil {
		t.Fatalf("the child said %q: %v", first, err)
	}
	go c.demultiplex(lines)
	return c
}

func (c *Child) demultiplex(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			close(c.dead)
			return
		}
		var id int
		var reply string
		if _, err := fmt.Sscanf(line, "%d %s", &id, &reply); err != nil {
			continue
		}
		c.mu.Lock()
		ch := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		ch <- reply
	}
}

// Span says where its memory is.
func (c *Child) Span() memtrack.Span { return c.span }

// Begin begins an access; the channel gives the reply when there is one.
//
//	write FIRST COUNT VALUE   one byte in each page
//	trickle FIRST COUNT VALUE the same, taking some time between two
//	read FIRST COUNT          hash of the pages
func (c *Child) Begin(op string, first, count uint64, value byte) <-chan string {
	reply := make(chan string, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.waiting[c.next] = reply
	fmt.Fprintln(c.in, c.next, op, first, count, value)
	return reply
}

func (c *Child) do(t testing.TB, op string, first, count uint64, value byte) string {
	t.Helper()
	select {
	case r := <-c.Begin(op, first, count, value):
		return r
	case <-c.dead:
		t.Fatalf("child %d died during %s of page %d", c.span.PID, op, first)
	case <-time.After(20 * time.Second):
		t.Fatalf("child %d: %s of %d pages from page %d hangs", c.span.PID, op, count, first)
	}
	return ""
}

// Write changes one byte in each page.
func (c *Child) Write(t testing.TB, first, count uint64, value byte) {
	t.Helper()
	c.do(t, "write", first, count, value)
}

// Read gives the hash of what the child sees in the pages; HashPages of the same bytes is the same.
func (c *Child) Read(t testing.TB, first, count uint64) string {
	t.Helper()
	return c.do(t, "read", first, count, 0)
}

// WaitsForPage tells whether a thread of the child waits for a page to come.
func (c *Child) WaitsForPage() bool {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", c.span.PID))
	for _, path := range paths {
		if where, err := os.ReadFile(path); err == nil && strings.Contains(string(where), "handle_userfault") {
			return true
		}
	}
	return false
}

// Signal sends the child a signal.
func (c *Child) Signal(s unix.Signal) error { return unix.Kill(c.span.PID, s) }

// Kill ends the child.
func (c *Child) Kill() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
}

// childMain serves accesses until its input ends.
func childMain(mode string) int {
	var pages int
	var shared bool
	if _, err := fmt.Sscan(mode, &pages, &shared); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	mem, err := mapMemory(pages*memtrack.PageBytes, shared)
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	start := addressOf(mem)
	fmt.Println(start, start+uint64(len(mem)))
	var out sync.Mutex
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var id int
		var op string
		var first, count uint64
		var value byte
		if _, err := fmt.Sscan(requests.Text(), &id, &op, &first, &count, &value); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			return 1
		}
		go func() {
			reply := access(mem, op, first, count, value)
			out.Lock()
			fmt.Println(id, reply)
			out.Unlock()
		}()
	}
	return 0
}

func mapMemory(n int, shared bool) ([]byte, error) {
	const rw = unix.PROT_READ | unix.PROT_WRITE
	if !shared {
		return unix.Mmap(-1, 0, n, rw, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	}
	fd, err := unix.MemfdCreate("memory-backend-memfd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, n, rw, unix.MAP_SHARED)
}

func access(mem []byte, op string, first, count uint64, value byte) string {
	const n = memtrack.PageBytes
	if op == "read" {
		return HashPages(mem[first*n : (first+count)*n])
	}
	for page := first; page < first+count; page++ {
		mem[page*n+WrittenByte] = value
		if op == "trickle" {
			spin(trickleTime)
		}
	}
	return "ok"
}

// trickleTime is what lies between two writes of a trickle: 4096 pages take 0.1 s.
const trickleTime = 25 * time.Microsecond

// spin waits without a system call, so that the writes don't keep step with whoever stops this process.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}
