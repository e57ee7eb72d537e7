package host

import (
	"context"
	"sync"
	"time"
)

// answerKept is how long the answer to a request id is remembered.
const answerKept = 10 * time.Minute

// answers makes requests idempotent by their id: the same id again waits for the first answer and gets it too. Nothing
// is ever guessed from how the VM looks.
type answers struct {
	now func() time.Time

	mu    sync.Mutex // guards the rest; never held while a request runs
	known map[string]*answer
}

type answer struct {
	done  chan struct{}
	value any
	err   error
	at    time.Time
}

func newAnswers(now func() time.Time) *answers {
	return &answers{now: now, known: map[string]*answer{}}
}

// once runs do, or gives what an earlier call with this id gave that was about the same, a verb and its VM. Failures are not remembered: they may be tried again.
func once[T any](ctx context.Context, a *answers, about, id string, do func() (T, error)) (T, error) {
	if id == "" {
		return do()
	}
	key := about + " " + id
	a.mu.Lock()
	for k, old := range a.known {
		if !old.at.IsZero() && a.now().Sub(old.at) > answerKept {
			delete(a.known, k)
		}
	}
	first := a.known[key]
	if first == nil {
		mine := &answer{done: make(chan struct{})}
		a.known[key] = mine
		a.mu.Unlock()
		value, err := do()
		a.mu.Lock()
		mine.value, mine.err, mine.at = value, err, a.now()
		if err != nil {
			delete(a.known, key)
		}
		a.mu.Unlock()
		close(mine.done)
		return value, err
	}
	a.mu.Unlock()
	select {
	case <-first.done:
		return first.value.(T), first.err
	case <-ctx.Done():
		var zero T
		return zero, Errorf(CodeCanceled, "ask again with the same request id", "the first request with id %s is still running: %w", id, ctx.Err())
	}
}
