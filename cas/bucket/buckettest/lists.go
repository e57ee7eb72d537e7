package buckettest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"flash/cas/bucket"
)

func listIsComplete(t *testing.T, b bucket.Bucket) {
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("packs/%02x.pack", i*5))
	}
	// '-' and '.' sort before '/', letters after it: a folder's keys lie among its neighbours', not behind them.
	keys = append(keys, "a/b", "a-b", "a.b", "ab", "a/b.c", "a/c/d", "packs-old", "flash.json", "packs/sub/x")
	for _, key := range keys {
		put(t, b, key, []byte(key), bucket.Condition{})
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "p", "packs", "packs/", "packs/0", "packs/sub/", "packs/sub/x", "a", "a/", "a/b", "flash.json", "nothing", "nothing/", "a/b/"} {
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		var got []string
		for _, info := range list(t, b, prefix) {
			got = append(got, info.Key)
			if info.Bytes != int64(len(info.Key)) || info.Version == "" {
				t.Fatalf("list %q says %+v", prefix, info)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("list %q yields\n%q, not\n%q", prefix, got, want)
		}
	}
}

func listFollows(t *testing.T, b bucket.Bucket) {
	for i := range 10 {
		key := fmt.Sprintf("leases/host/%d", i)
		put(t, b, key, []byte("x"), bucket.Condition{Absent: true})
		if l := list(t, b, "leases/"); len(l) != 1 || l[0].Key != key {
			t.Fatalf("after the put of %s there is %+v", key, l)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if l := list(t, b, "leases/"); len(l) != 0 {
			t.Fatalf("after the delete of %s there is %+v", key, l)
		}
	}
}

func listMayBeLeft(t *testing.T, b bucket.Bucket) {
	for i := range 5 {
		put(t, b, fmt.Sprintf("k/%d", i), nil, bucket.Condition{})
	}
	seen := 0
	for _, err := range b.List(t.Context(), "k/") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Fatalf("%d objects were seen", seen)
	}
	if l := list(t, b, "k/"); len(l) != 5 {
		t.Fatalf("after a list that was left there are %d objects", len(l))
	}
}
