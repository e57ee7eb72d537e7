package buckettest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"flash/cas/bucket"
)

// RunFaults checks that a bucket gets over every passing fault of every verb: each alone, and all together by chance. open
// gives an empty bucket whose server is behind the proxy.
func RunFaults(t *testing.T, target string, open func(t *testing.T, p *Proxy) bucket.Bucket) {
	for _, kind := range Passing {
		for _, verb := range Verbs {
			t.Run(strings.ReplaceAll(fmt.Sprintf("%s of %s", kind, verb), " ", "_"), func(t *testing.T) {
				t.Parallel() // they wait more than they work
				p := ProxyFor(t, target, Plan{})
				b := open(t, p)
				for _, first := range []int{1, 3} { // which one of its requests
					p.SetPlan(Plan{Faults: []Fault{{Kind: kind, Verb: verb, From: first}}})
					exercise(t, b, fmt.Sprintf("%d", first))
				}
				if p.Faults(kind) == 0 && kind.happensTo(verb) {
					t.Fatal("no fault was injected")
				}
			})
		}
	}
	t.Run("AllByChance", func(t *testing.T) {
		t.Parallel()
		const seed = 4
		p := ProxyFor(t, target, Plan{})
		b := open(t, p)
		var faults []Fault
		for _, kind := range Passing {
			faults = append(faults, Fault{Kind: kind, Chance: 0.03})
		}
		p.SetPlan(Plan{Seed: seed, Faults: faults})
		for round := range 6 {
			exercise(t, b, fmt.Sprintf("%d", round))
		}
		if p.Faults("") < 10 {
			t.Fatalf("only %d faults were injected", p.Faults(""))
		}
	})
}

// exercise does everything a bucket is for, once, and looks at every answer.
func exercise(t *testing.T, b bucket.Bucket, folder string) {
	t.Helper()
	key := folder + "/object"
	one, two := Bytes(1, 200_000), Bytes(2, 150_001)
	v1 := put(t, b, key, one, bucket.Condition{Absent: true})
	wantObject(t, b, key, one)
	v2 := put(t, b, key, two, bucket.Condition{Match: v1})
	_, err := b.Put(t.Context(), key, bytes.NewReader(one), int64(len(one)), bucket.Condition{Match: v1})
	wantKind(t, "put over a state that has passed", err, bucket.ErrCondition)
	wantObject(t, b, key, two)
	if v1 == v2 {
		t.Fatal("two states have one version")
	}
	part := make([]byte, 70_000)
	if err := b.GetRange(t.Context(), key, part, 80_001); err != nil || !bytes.Equal(part, two[80_001:]) {
		t.Fatalf("a range isn't what was written: %v", err)
	}
	wantKind(t, "a range that is too long", b.GetRange(t.Context(), key, part, 80_002), bucket.ErrShort)
	race2(t, b, folder+"/race")
	put(t, b, folder+"/unconditional", one, bucket.Condition{})
	if l := list(t, b, folder+"/"); len(l) != 3 {
		t.Fatalf("3 objects are there, the list says %+v", l)
	}
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), key)
	wantKind(t, "stat of a deleted object", err, bucket.ErrNotFound)
}

// race2 is a race between two: who is told that it won has won, whatever answers were lost.
func race2(t *testing.T, b bucket.Bucket, key string) {
	t.Helper()
	v := put(t, b, key, []byte("before"), bucket.Condition{Absent: true})
	var wg sync.WaitGroup
	var errs [2]error
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = b.Put(t.Context(), key, strings.NewReader(fmt.Sprintf("racer %d", i)), 7, bucket.Condition{Match: v})
		})
	}
	wg.Wait()
	got, _ := get(t, b, key)
	for i, err := range errs {
		mine := string(got) == fmt.Sprintf("racer %d", i)
		if (err == nil) != mine || (err != nil && !errors.Is(err, bucket.ErrCondition)) {
			t.Fatalf("racer %d was told %v; there is %q", i, err, got)
		}
	}
}
