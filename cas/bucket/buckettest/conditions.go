package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"flash/cas/bucket"
)

const racers = 16

func versionsTellStates(t *testing.T, b bucket.Bucket) {
	v1 := put(t, b, "k", []byte("one"), bucket.Condition{})
	if _, v := get(t, b, "k"); v != v1 {
		t.Fatalf("put says version %s, get %s", v1, v)
	}
	v2 := put(t, b, "k", []byte("two"), bucket.Condition{})
	if v1 == v2 {
		t.Fatalf("two states have the version %s", v1)
	}
	_, err := b.Put(t.Context(), "k", bytes.NewReader([]byte("three")), 5, bucket.Condition{Match: v1})
	wantKind(t, "put over a state that has passed", err, bucket.ErrCondition)
	v3 := put(t, b, "k", []byte("three"), bucket.Condition{Match: v2})
	wantObject(t, b, "k", []byte("three"))
	if v3 == v2 {
		t.Fatalf("two states have the version %s", v2)
	}
}

// race lets many put their own bytes under one condition and says whose are there: exactly one may have won, and they are his.
func race(t *testing.T, b bucket.Bucket, key string, c bucket.Condition) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, racers)
	start := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			<-start
			data := fmt.Appendf(nil, "racer %02d of %s", i, key)
			_, errs[i] = b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), c)
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err != nil && !errors.Is(err, bucket.ErrCondition):
			t.Fatalf("racer %d: %v", i, err)
		case err == nil && winner >= 0:
			t.Fatalf("%s: racers %d and %d have both won", key, winner, i)
		case err == nil:
			winner = i
		}
	}
	if winner < 0 {
		t.Fatalf("%s: nobody has won; racer 0: %v", key, errs[0])
	}
	if got, _ := get(t, b, key); string(got) != fmt.Sprintf("racer %02d of %s", winner, key) {
		t.Fatalf("racer %d was told that it won; there is %q", winner, got)
	}
}

func absentIsWonOnce(t *testing.T, b bucket.Bucket) {
	for round := range 4 {
		race(t, b, fmt.Sprintf("races/%d", round), bucket.Condition{Absent: true})
	}
}

func matchIsWonOnce(t *testing.T, b bucket.Bucket) {
	for round := range 4 {
		key := fmt.Sprintf("races/%d", round)
		v := put(t, b, key, []byte("before"), bucket.Condition{})
		race(t, b, key, bucket.Condition{Match: v})
	}
}

func repeatedPutSucceeds(t *testing.T, b bucket.Bucket) {
	v := put(t, b, "k", []byte("mine"), bucket.Condition{Absent: true})
	if again := put(t, b, "k", []byte("mine"), bucket.Condition{Absent: true}); again != v {
		t.Fatalf("the same put again says version %s, not %s", again, v)
	}
	v2 := put(t, b, "k", []byte("next"), bucket.Condition{Match: v})
	if again := put(t, b, "k", []byte("next"), bucket.Condition{Match: v}); again != v2 {
		t.Fatalf("the same put again says version %s, not %s", again, v2)
	}
	for _, other := range []string{"mine", "nexT", "nex", "next!", ""} {
		_, err := b.Put(t.Context(), "k", bytes.NewReader([]byte(other)), int64(len(other)), bucket.Condition{Match: v})
		wantKind(t, "put something else over a state that has passed", err, bucket.ErrCondition)
	}
	wantObject(t, b, "k", []byte("next"))
}

func matchOnAbsent(t *testing.T, b bucket.Bucket) {
	v := put(t, b, "k", []byte("x"), bucket.Condition{})
	if err := b.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	_, err := b.Put(t.Context(), "k", bytes.NewReader([]byte("y")), 1, bucket.Condition{Match: v})
	wantKind(t, "put over an object that is gone", err, bucket.ErrCondition)
	_, err = b.Stat(t.Context(), "k")
	wantKind(t, "stat after it", err, bucket.ErrNotFound)
}

// counterLosesNothing is what refs are: read, change, put if nobody else did.
func counterLosesNothing(t *testing.T, b bucket.Bucket) {
	const writers, each = 4, 5
	put(t, b, "vms/counter", []byte("0 nobody"), bucket.Condition{Absent: true})
	var wg sync.WaitGroup
	var conflicts atomic.Int64
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				for {
					lost, err := increment(t.Context(), b, fmt.Sprintf("%d.%d", w, i))
					if err != nil {
						t.Error(err)
						return
					}
					if !lost {
						break
					}
					conflicts.Add(1)
				}
			}
		})
	}
	wg.Wait()
	got, _ := get(t, b, "vms/counter")
	if n, _, _ := bytes.Cut(got, []byte(" ")); string(n) != strconv.Itoa(writers*each) {
		t.Fatalf("%d increments were acknowledged (%d conflicts); the counter says %q", writers*each, conflicts.Load(), got)
	}
}

func increment(ctx context.Context, b bucket.Bucket, who string) (lost bool, err error) {
	data, v, err := b.Get(ctx, "vms/counter", 100)
	if err != nil {
		return false, err
	}
	number, _, _ := bytes.Cut(data, []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		return false, err
	}
	next := fmt.Appendf(nil, "%d %s", n+1, who)
	_, err = b.Put(ctx, "vms/counter", bytes.NewReader(next), int64(len(next)), bucket.Condition{Match: v})
	if errors.Is(err, bucket.ErrCondition) {
		return true, nil
	}
	return false, err
}

// readersSeeWhole replaces an object while it is read: each read is of one state, whole.
func readersSeeWhole(t *testing.T, b bucket.Bucket) {
	const size = 300_000
	states := [][]byte{bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size+1)}
	put(t, b, "k", states[0], bucket.Condition{})
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				data, _, err := b.Get(t.Context(), "k", mib)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(data, states[0]) && !bytes.Equal(data, states[1]) {
					t.Errorf("%d bytes were read that nobody wrote", len(data))
					return
				}
			}
		})
	}
	for i := range 12 {
		put(t, b, "k", states[(i+1)%2], bucket.Condition{})
	}
	close(done)
	wg.Wait()
}
