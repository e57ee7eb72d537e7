package offsite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"flash/cas/bucket"
)

// replication runs one and gives its reports.
type replication struct {
	changed chan struct{}
	reports chan Lag
	stop    func()
}

func (h *host) replicate(vms ...string) *replication {
	ctx, cancel := context.WithCancel(context.Background())
	r := &replication{changed: make(chan struct{}, 1), reports: make(chan Lag, 1000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Replicate(ctx, func() []string { return vms }, r.changed, func(l Lag) { r.reports <- l }); err != nil {
			h.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	h.t.Cleanup(r.stop)
	return r
}

func (r *replication) poke() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// until takes reports until one is as wanted.
func (r *replication) until(t *testing.T, what string, want func(Lag) bool) (seen []Lag) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case l := <-r.reports:
			seen = append(seen, l)
			if want(l) {
				return seen
			}
		case <-limit:
			t.Fatalf("never %s; reports: %+v", what, seen)
		}
	}
}

func caughtUp(l Lag) bool { return l.Checkpoints == 0 && l.Err == nil }

func TestReplicationFollowsEveryCheckpointAndSurvivesARestart(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 2)
	r := a.replicate("vm", "gone")
	first := r.until(t, "caught up", caughtUp)
	if l := first[0]; l.Checkpoints != 2 || l.Bytes == 0 || l.Since.IsZero() {
		t.Errorf("%+v", l)
	}
	for i := range 3 {
		states[a.checkpoint("vm", state{uint64(i): 500})] = nil
		r.poke()
		r.until(t, "caught up", caughtUp)
	}
	r.stop()
	a.checkpoint("vm", state{9: 900})
	a.restart()
	r = a.replicate("vm")
	if l := r.until(t, "caught up", caughtUp)[0]; l.Checkpoints != 1 {
		t.Errorf("after a restart: %+v", l)
	}
	r.stop()
	if ref, err := b.Ref(context.Background(), "vm"); err != nil || ref.Newest != 6 || ref.Seq != 5 {
		t.Errorf("%+v, %v", ref, err)
	}
}

func TestReplicationCatchesUpAfterAnOutageWithCappedPauses(t *testing.T) {
	m, c := newMemory(), newClock()
	a := newHost(t, "a", m, c)
	a.chain("vm", 1, 2)
	var mu sync.Mutex
	var pauses []time.Duration
	wait := a.Offsite.wait
	a.Offsite.wait = func(ctx context.Context, d time.Duration) error {
		if d == leaseTime/5 {
			return wait(ctx, d)
		}
		mu.Lock()
		pauses = append(pauses, d)
		n := len(pauses)
		mu.Unlock()
		if n == 12 {
			a.setAway(false)
		}
		c.advance(d)
		return ctx.Err()
	}
	a.setAway(true)
	r := a.replicate("vm")
	seen := r.until(t, "caught up", caughtUp)
	r.stop()
	if !slices.ContainsFunc(seen, func(l Lag) bool { return errors.Is(l.Err, bucket.ErrUnavailable) && !l.Retry.IsZero() }) {
		t.Errorf("no report says why: %+v", seen)
	}
	for i, d := range pauses {
		if d > longPause || d < firstPause/4 {
			t.Errorf("pause %d is %s", i, d)
		}
	}
	if len(pauses) != 12 || pauses[11] < 20*time.Second {
		t.Errorf("pauses: %v", pauses)
	}
}

func TestAVMThatCantBeReplicatedDoesntHoldUpAnother(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	a.chain("taken", 1, 1)
	a.push("taken")
	b.pull(PullRequest{VM: "taken", TakeOver: true})
	a.checkpoint("taken", state{1: 1})
	a.chain("vm", 2, 2)
	a.Offsite.wait = func(ctx context.Context, d time.Duration) error { <-ctx.Done(); return ctx.Err() }
	r := a.replicate("taken", "vm")
	seen := r.until(t, "caught up", func(l Lag) bool { return l.VM == "vm" && caughtUp(l) })
	if !slices.ContainsFunc(seen, func(l Lag) bool { return l.VM == "taken" && errors.Is(l.Err, ErrNotOwner) }) {
		t.Errorf("%+v", seen)
	}
}
