package vmmtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"flash/vmm"
	"flash/vmm/guest"
)

// dirty is a script that changes more than a little memory.
func (s *suite) dirty(bytes int) string {
	return fmt.Sprintf("head -c %d /dev/urandom > %s/dirty", bytes, s.options.Folder)
}

func (s *suite) same(t *testing.T) {
	v := s.revive(t, s.booted)
	v.write("same", "kept-over-the-restore")
	v.run(s.dirty(300 << 10))
	at := v.checkpoint() // compares all of memory with what the deltas gave
	v.write("same", "written-after")
	r := s.restore(t, at, nil)
	at.memory.mustBe(t, "a restored machine that has not run", r.Memory())
	if s.options.OnDisk && !at.disk.contains("kept-over-the-restore") {
		t.Error("a synced file isn't on the checkpoint's disk")
	}
	r.goOn()
	r.reads("same", "kept-over-the-restore")
	if again := r.checkpoint(); s.options.OnDisk && again.disk.contains("written-after") {
		t.Error("the disk is of another instant than the memory")
	}
}

func (s *suite) sourceAnswers(t *testing.T) {
	v := s.revive(t, s.booted)
	for i := range 3 {
		v.write("source", fmt.Sprint("round-", i))
		at := v.checkpoint()
		v.wants("echo here", "here")
		child := s.revive(t, at)
		v.wants("echo still here", "still here")
		child.reads("source", fmt.Sprint("round-", i))
		child.end()
	}
}

func (s *suite) chain(t *testing.T) {
	const cycles = 4
	at := s.booted
	for i := range cycles {
		v := s.revive(t, at)
		v.write(fmt.Sprint("link-", i), fmt.Sprint("of-cycle-", i))
		v.run(s.dirty(100<<10 + i))
		at = v.checkpoint()
		v.write(fmt.Sprint("lost-", i), "after-the-checkpoint")
		v.end()
	}
	v := s.revive(t, at)
	for i := range cycles {
		v.reads(fmt.Sprint("link-", i), fmt.Sprint("of-cycle-", i))
		v.lacks(fmt.Sprint("lost-", i))
	}
}

// untouched is the checkpoint that saves absent pages as zeros, if anything does.
func (s *suite) untouched(t *testing.T) {
	v := s.restore(t, s.booted, nil)
	at := v.cut(s.context(t))
	if !at.memory.equal(s.booted.memory) && v.Tracker().Name() != "hash-compare" {
		t.Log("a machine that has not run changed its memory") // devices may, as they are loaded
	}
	v.goOn() // although its state was saved before it ever ran
	v.wants("echo on", "on")
	again := v.checkpoint()
	r := s.revive(t, at)
	r.wants("echo on", "on")
	s.revive(t, again).wants("echo on", "on")
}

func (s *suite) rollback(t *testing.T) {
	v := s.revive(t, s.booted)
	v.write("rolled", "back")
	v.quiet(func(ctx context.Context) {
		memory, err := v.Tracker().Cut(ctx)
		must(t, err)
		disk, err := v.overlay.Cut(ctx)
		must(t, err)
		if memory.Len() == 0 {
			t.Error("a machine that ran has no changed pages")
		}
		if _, err := v.Tracker().Cut(ctx); err == nil {
			t.Error("a second cut while a delta is open succeeded")
		}
		memory.Rollback()
		disk.Rollback()
	})
	v.run(s.dirty(50 << 10))
	at := v.checkpoint() // complains when anything is missing
	s.revive(t, at).reads("rolled", "back")
}

func (s *suite) idle(t *testing.T) {
	v := s.revive(t, s.booted)
	v.run(s.dirty(500 << 10))
	v.checkpoint()
	v.quiet(func(ctx context.Context) {
		memory, err := v.Tracker().Cut(ctx)
		must(t, err)
		disk, err := v.overlay.Cut(ctx)
		must(t, err)
		t.Logf("%d pages and %d blocks between two checkpoints of an idle guest", memory.Len(), disk.Len())
		if memory.Len() > s.options.IdlePages {
			t.Errorf("an idle guest changed %d pages, more than %d", memory.Len(), s.options.IdlePages)
		}
		memory.Commit()
		disk.Rollback()
	})
}

func (s *suite) diverge(t *testing.T) {
	parent := s.revive(t, s.booted)
	parent.write("shared", "of-the-parent")
	at := parent.checkpoint()
	key := func(a *vmm.Attach) { a.MemoryKey = "vmmtest-diverge" }
	a, b := s.restore(t, at, key), s.restore(t, at, key)
	a.goOn()
	b.goOn()
	a.write("shared", "of-the-first")
	a.write("only-a", "x")
	a.run(s.dirty(200 << 10))
	b.reads("shared", "of-the-parent")
	b.lacks("only-a")
	b.write("shared", "of-the-second")
	a.reads("shared", "of-the-first")
	parent.reads("shared", "of-the-parent")
	ofA, ofB := a.checkpoint(), b.checkpoint()
	c := s.restore(t, at, key)
	at.memory.mustBe(t, "a third restore, after two siblings ran", c.Memory())
	c.goOn()
	c.reads("shared", "of-the-parent")
	c.lacks("only-a")
	s.revive(t, ofA).reads("shared", "of-the-first")
	s.revive(t, ofB).reads("shared", "of-the-second")
}

func (s *suite) siblings(t *testing.T) {
	parent := s.revive(t, s.booted)
	at := parent.checkpoint()
	seen := map[string]bool{}
	for range 3 {
		v := s.revive(t, at)
		for range 3 {
			id := v.run("cat /proc/sys/kernel/random/uuid")
			if len(id) != 36 || seen[id] {
				t.Fatalf("%q was seen before, or is no uuid", id)
			}
			seen[id] = true
		}
	}
}

// heard collects what a command says, and tells when it has said a certain thing.
type heard struct {
	mu    sync.Mutex // guards the rest
	said  bytes.Buffer
	until string
	ready chan struct{} // closed once until has been said
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said.Write(p)
	if h.until != "" && strings.Contains(h.said.String(), h.until) {
		h.until = ""
		close(h.ready)
	}
	return len(p), nil
}

func (s *suite) goesOn(t *testing.T) {
	v := s.revive(t, s.booted)
	script := fmt.Sprintf("echo begun; sleep 0.4; echo ended; echo done > %s/goes-on; exit 5", s.options.Folder)
	long := guest.ExecRequest{ID: "vmmtest-long", Argv: []string{"sh", "-c", script}}
	out := &heard{until: "begun\n", ready: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		st, err := v.client.Exec(s.context(t), long, guest.Streams{Stdout: out})
		if err == nil && st.Code != 5 {
			err = fmt.Errorf("it ended with %+v", st)
		}
		ended <- err
	}()
	select {
	case <-out.ready:
	case err := <-ended:
		t.Fatalf("the command ended before its output came: %v", err)
	}
	at := v.checkpoint()
	if err := <-ended; err != nil || out.said.String() != "begun\nended\n" {
		t.Fatalf("in the source: %v, %q", err, out.said.String())
	}
	for range 2 {
		r := s.revive(t, at)
		var rest bytes.Buffer
		st, err := r.client.AttachExec(s.context(t), long.ID, guest.Streams{Stdout: &rest})
		must(t, err)
		if st.Code != 5 || !strings.HasSuffix(rest.String(), "ended\n") || !strings.HasSuffix("begun\nended\n", rest.String()) {
			t.Fatalf("after the restore it ended with %+v and said %q", st, rest.String())
		}
		r.reads("goes-on", "done")
		r.end()
	}
}
