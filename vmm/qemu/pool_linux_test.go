package qemu

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// A wide fork makes the processes it needs itself; ones made beside it would only take its CPUs.
func TestNoWaitingProcessIsMadeWhileARestoreIsUnderWay(t *testing.T) {
	made := make(chan shape, 100)
	p := newPool(2, slog.New(slog.DiscardHandler), func(_ context.Context, s shape) (*instance, error) {
		made <- s
		return nil, errors.New("this is only a test")
	})
	defer p.close()
	first, second := p.hold(shape{vcpus: 1}), p.hold(shape{vcpus: 2})
	first()
	if p.makeOne(t.Context()) || len(made) > 0 {
		t.Fatal("a process was made although a restore is under way")
	}
	second()
	select {
	case s := <-made:
		if s.vcpus != 2 {
			t.Errorf("a process of shape %+v was made, the last restore's was another", s)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no process was made after the restores")
	}
}

// A fork as wide as the last one finds its processes waiting; ten minutes later they are gone.
func TestAsManyWaitAsWereAskedForAtOnce(t *testing.T) {
	p := newPool(2, slog.New(slog.DiscardHandler), func(context.Context, shape) (*instance, error) { return nil, errors.New("this is only a test") })
	defer p.close()
	now := time.Unix(1_700_000_000, 0)
	p.mu.Lock()
	p.now = func() time.Time { return now }
	p.mu.Unlock()
	wants := func(want int) {
		t.Helper()
		p.mu.Lock()
		defer p.mu.Unlock()
		if got := p.target(); got != want {
			t.Fatalf("%d are to wait, want %d", got, want)
		}
	}
	restore := func(atOnce, all int) {
		var under []func()
		for range all {
			if len(under) == atOnce {
				under[0]()
				under = under[1:]
			}
			under = append(under, p.hold(shape{}))
			p.take(shape{})
		}
		for _, end := range under {
			end()
		}
	}
	wants(2)
	restore(1, 20) // one after the other, as rewinds
	wants(2)
	restore(4, 5)
	wants(5)
	now = now.Add(time.Minute)
	restore(1, 1)
	wants(5)
	restore(4, 30)
	wants(maxAtOnce)
	now = now.Add(peakKept + time.Second)
	wants(2)
	restore(1, 1)
	wants(2)
}
