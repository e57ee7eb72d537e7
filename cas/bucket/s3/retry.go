package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// try calls f until it succeeds, its failure won't pass, the tries are used up, or ctx ends. The failure comes back as one of
// the bucket's kinds, in a sentence with a remedy.
func (b *Bucket) try(ctx context.Context, op, key string, f func(context.Context) error) error {
	wait := b.config.BackOff
	for n := 1; ; n++ {
		err := once(ctx, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", op, b.at(key), ctx.Err())
		}
		v := b.classify(err)
		if !v.passes || n >= b.config.Tries {
			return b.failure(op, key, v, err, n)
		}
		b.http.retries.Add(1)
		if ended := pause(ctx, wait); ended != nil {
			return fmt.Errorf("%s %s: %w (the last try: %w)", op, b.at(key), ended, err)
		}
		wait = min(2*wait, b.config.BackOffCap)
	}
}

// attempt is one call of f. Its context ends with the first request of it that fails in a way that may pass, and with it the
// library's wait for a retry that it never makes. The failure is kept here, since the library then only says that the context
// has ended.
type attempt struct {
	end    context.CancelFunc
	failed atomic.Pointer[error]
}

type attemptKey struct{}

func once(ctx context.Context, f func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	a := &attempt{end: end}
	err := f(context.WithValue(ctx, attemptKey{}, a))
	if failed := a.failed.Load(); failed != nil && errors.Is(err, context.Canceled) {
		return *failed
	}
	return err
}

// fails ends the attempt that a request belongs to, if to any.
func fails(ctx context.Context, err error) error {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.failed.CompareAndSwap(nil, &err)
		a.end()
	}
	return err
}

// pause waits between half of longest and all of it: clients that were turned away together don't come back together.
func pause(ctx context.Context, longest time.Duration) error {
	t := time.NewTimer(longest/2 + rand.N(longest/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// at names an object for people.
func (b *Bucket) at(key string) string { return b.Location() + "/" + key }
