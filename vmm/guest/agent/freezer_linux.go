package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

const (
	freezeLimit      = 10 * time.Second // for every process to have stopped
	defaultThawAfter = time.Minute
)

// freezer stops the workload and lets it go on.
//
//	           freeze                      repair begins
//	thawed ──────────────▶ frozen, timer ───────────────▶ frozen, no timer
//	   ▲                      │  ▲ a session begins:           │
//	   │                      │  └─ the timer starts anew      │
//	   └──────────────────────┴────────────────────────────────┘
//	     thaw, or the timer                 thaw
type freezer struct {
	groups  *groups
	foresee func() *foresight // nil: looks up nothing
	file    *keptFile         // cgroup.freeze of the workload

	starting sync.RWMutex // read-held while a command is started; before mu

	mu     sync.Mutex // guards the rest
	frozen bool
	limit  time.Duration
	timer  *time.Timer // nil: the host has taken charge
	round  int         // of the timer: one that fires late finds another
	known  *foresight  // while frozen
}

// freeze stops everything and thaws it again after limit, unless it hears otherwise.
func (f *freezer) freeze(ctx context.Context, limit time.Duration) error {
	if limit <= 0 {
		limit = defaultThawAfter
	}
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	f.starting.Lock()
	defer f.starting.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = limit
	if err := f.set(ctx, "1"); err != nil {
		f.set(context.WithoutCancel(ctx), "0")
		return err
	}
	f.frozen = true
	if f.foresee != nil {
		f.known = f.foresee()
	}
	f.wind()
	return nil
}

func (f *freezer) thaw(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawLocked(ctx)
}

func (f *freezer) thawLocked(ctx context.Context) error {
	if !f.frozen {
		return nil
	}
	if err := f.set(ctx, "0"); err != nil {
		return err
	}
	f.frozen, f.known = false, nil
	f.unwind()
	return nil
}

// set writes the state and waits until it is reached.
func (f *freezer) set(ctx context.Context, state string) error {
	if err := f.write(state); err != nil {
		return fmt.Errorf("freeze the workload: %w", err)
	}
	if state == "0" {
		return nil // going on needs no waiting for
	}
	return f.groups.watch.wait(ctx, f.groups.root, "frozen", state)
}

func (f *freezer) write(state string) error {
	if state == "0" && f.file.fd >= 0 {
		return quickWrite(f.file.fd, state)
	}
	fd, _ := f.file.look()
	if fd < 0 {
		return unix.ENOENT
	}
	return quickWrite(fd, state)
}

// wind starts the timer anew. mu is held.
func (f *freezer) wind() {
	f.unwind()
	round := f.round
	f.timer = time.AfterFunc(f.limit, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.round != round || f.timer == nil {
			return
		}
		say("the host has been silent for %v: thawing the workload", f.limit)
		if err := f.thawLocked(context.Background()); err != nil {
			say("%v", err)
		}
	})
}

// unwind stops the timer. mu is held.
func (f *freezer) unwind() {
	f.round++
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// heard starts the timer anew because the host is there again.
func (f *freezer) heard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.wind()
	}
}

// takeCharge stops the timer for good: from here on only an explicit thaw will do. It gives what was found out when the
// workload was frozen; nil if it isn't.
func (f *freezer) takeCharge() *foresight {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unwind()
	return f.known
}

// letStart calls start unless the workload is frozen: a child born frozen would hold up its parent inside vfork.
func (f *freezer) letStart(start func() error) error {
	f.starting.RLock()
	defer f.starting.RUnlock()
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen {
		return &guest.AgentError{Code: guest.CodeFrozen, Message: "the workload is frozen"}
	}
	return start()
}

// giveBack starts the timer again when the workload is still frozen after a repair that went well.
func (f *freezer) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		f.wind()
	}
}
