package s3

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// try calls f until it succeeds, its failure won't pass, the tries are used up, or ctx ends. The failure comes back as one of
// the bucket's kinds, in a sentence with a remedy.
func (b *Bucket) try(ctx context.Context, op, key string, f func() error) error {
	wait := b.config.BackOff
	for n := 1; ; n++ {
		err := f()
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
