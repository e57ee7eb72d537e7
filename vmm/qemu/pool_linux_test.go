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
