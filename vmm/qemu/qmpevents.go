package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// watch collects the events of one name from the moment it was made, so that none is missed between a command and its event.
type watch struct {
	q      *monitor
	name   string
	events chan event
	missed bool // guarded by q.mu
}

// watch must be stopped.
func (q *monitor) watch(name string) *watch {
	w := &watch{q: q, name: name, events: make(chan event, 64)}
	q.mu.Lock()
	q.watches[w] = struct{}{}
	q.mu.Unlock()
	return w
}

// take is called with q.mu held.
func (w *watch) take(e event) {
	if e.name != w.name {
		return
	}
	select {
	case w.events <- e:
	default:
		w.missed = true
	}
}

// next waits for one event.
func (w *watch) next(ctx context.Context) (event, error) {
	began := time.Now()
	select {
	case e := <-w.events:
		return e, nil
	default:
	}
	select {
	case e := <-w.events:
		return e, nil
	case <-w.q.closed:
		select {
		case e := <-w.events: // it came before the end
			return e, nil
		default:
		}
		return event{}, w.q.failure()
	case <-ctx.Done():
		w.q.mu.Lock()
		missed := w.missed
		w.q.mu.Unlock()
		if missed {
			return event{}, fmt.Errorf("more %s events than could be kept", w.name)
		}
		return event{}, fmt.Errorf("waiting for %s: %w", w.name, w.q.explain(ctx.Err(), began))
	}
}

func (w *watch) stop() {
	w.q.mu.Lock()
	delete(w.q.watches, w)
	w.q.mu.Unlock()
}

// migrated waits until a migration that was begun has completed. w watches MIGRATION since before it began.
func (w *watch) migrated(ctx context.Context) error {
	for {
		e, err := w.next(ctx)
		if err != nil {
			return err
		}
		var data struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(e.data, &data); err != nil {
			return fmt.Errorf("MIGRATION event %.80q: %w", e.data, err)
		}
		switch data.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			var info struct {
				Desc string `json:"error-desc"`
			}
			if err := w.q.call(ctx, "query-migrate", nil, &info); err != nil {
				return fmt.Errorf("the migration %s, and asking why: %w", data.Status, err)
			}
			return fmt.Errorf("the migration %s: %q", data.Status, info.Desc)
		}
	}
}

// human runs a command of the human monitor, whose answer is text. What went wrong is said in that text, too.
func (q *monitor) human(ctx context.Context, line string) (string, error) {
	var text string
	err := q.call(ctx, "human-monitor-command", map[string]string{"command-line": line}, &text)
	return text, err
}
