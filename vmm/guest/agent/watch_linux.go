package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher tells when control groups change, by inotify on their cgroup.events.
type watcher struct {
	fd   int
	file *os.File // reads fd through the poller

	mu      sync.Mutex // guards the rest
	waiting map[int32][]chan struct{}
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &watcher{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), waiting: map[int32][]chan struct{}{}}
	go w.run()
	return w, nil
}

func (w *watcher) run() {
	buf := make([]byte, 1024)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for p := buf[:n]; len(p) >= unix.SizeofInotifyEvent; {
			le := binary.LittleEndian
			for _, c := range w.waiting[int32(le.Uint32(p))] {
				select {
				case c <- struct{}{}:
				default:
				}
			}
			p = p[min(len(p), unix.SizeofInotifyEvent+int(le.Uint32(p[12:]))):]
		}
		w.mu.Unlock()
	}
}

// The kernel tells of a change at most every 10 ms per file, and not at all when the group is removed before that. So a
// wait that is bounded also looks by itself, ever more rarely.
const (
	lookFirst = time.Millisecond
	lookLast  = 64 * time.Millisecond
)

// wait waits until a key of a group's cgroup.events has a value. A group that isn't there any more has any value.
// Without a deadline it only waits for events, so that it costs nothing while nothing happens.
func (w *watcher) wait(ctx context.Context, group, key, value string) error {
	path := filepath.Join(group, "cgroup.events")
	if ok, err := eventIs(path, key, value); ok || err != nil {
		return err
	}
	c := make(chan struct{}, 1)
	wd, err := w.add(path, c)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer w.remove(wd, c)
	var look <-chan time.Time
	pause := lookFirst
	for {
		if ok, err := eventIs(path, key, value); ok || err != nil {
			return err
		}
		if _, bounded := ctx.Deadline(); bounded {
			look = time.After(pause)
			pause = min(2*pause, lookLast)
		}
		select {
		case <-c:
		case <-look:
		case <-ctx.Done():
			return fmt.Errorf("%s of %s doesn't become %s: %w", key, group, value, context.Cause(ctx))
		}
	}
}

// add makes c hear of a file. Waiters of one file share a watch: the kernel gives them the same number.
func (w *watcher) add(path string, c chan struct{}) (int32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := unix.InotifyAddWatch(w.fd, path, unix.IN_MODIFY)
	if err != nil {
		return 0, err
	}
	w.waiting[int32(wd)] = append(w.waiting[int32(wd)], c)
	return int32(wd), nil
}

func (w *watcher) remove(wd int32, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := slices.DeleteFunc(w.waiting[wd], func(other chan struct{}) bool { return other == c })
	if len(rest) > 0 {
		w.waiting[wd] = rest
		return
	}
	delete(w.waiting, wd)
	unix.InotifyRmWatch(w.fd, uint32(wd)) // EINVAL when the group went away, and its watch with it
}

// poke makes every waiter look again: a group was removed, which the kernel doesn't tell.
func (w *watcher) poke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiters := range w.waiting {
		for _, c := range waiters {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

func eventIs(path, key, value string) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // the latter when it goes while we read
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), " "); k == key {
			return v == value, nil
		}
	}
	return false, fmt.Errorf("%s says nothing about %q", path, key)
}
