package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"flash/cas/bucket"
)

const mib = 1 << 20

// Run checks that a bucket keeps the promises of bucket.Bucket. open gives an empty one, and sees to its end by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) bucket.Bucket) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, b bucket.Bucket)
	}{
		{"WhatIsPutIsReadable", whatIsPutIsReadable},
		{"BigObjectsAreOnePut", bigObjects},
		{"RangesAreExact", rangesAreExact},
		{"GetHonoursItsLimit", getHonoursItsLimit},
		{"AbsentObjectsAreNotFound", absentObjects},
		{"ListIsCompleteAndAscending", listIsComplete},
		{"ListFollowsPutAndDelete", listFollows},
		{"ListMayBeLeftEarly", listMayBeLeft},
		{"VersionsTellStatesApart", versionsTellStates},
		{"AbsentIsWonOnce", absentIsWonOnce},
		{"MatchIsWonOnce", matchIsWonOnce},
		{"RepeatedConditionalPutSucceeds", repeatedPutSucceeds},
		{"MatchOnAbsentObjectFails", matchOnAbsent},
		{"CounterLosesNoIncrement", counterLosesNothing},
		{"ShortSourceWritesNothing", shortSource},
		{"ReadersSeeWholeObjects", readersSeeWhole},
		{"KeysThatEscapeAreRefused", keysThatEscape},
		{"OddKeysAreKept", oddKeys},
		{"DeletingNothingIsNoError", deletingNothing},
		{"CancelledCallsEnd", cancelledCalls},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// Bytes makes n bytes, the same for the same seed.
func Bytes(seed uint64, n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	data := make([]byte, n)
	rng.Read(data)
	return data
}

func put(t *testing.T, b bucket.Bucket, key string, data []byte, c bucket.Condition) bucket.Version {
	t.Helper()
	v, err := b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), c)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	if v == "" {
		t.Fatalf("put %s: it has no version", key)
	}
	return v
}

func get(t *testing.T, b bucket.Bucket, key string) ([]byte, bucket.Version) {
	t.Helper()
	data, v, err := b.Get(t.Context(), key, 64*mib)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return data, v
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%s: %v; want: %v", what, err, kind)
	}
}

func list(t *testing.T, b bucket.Bucket, prefix string) []bucket.Info {
	t.Helper()
	var all []bucket.Info
	for info, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		all = append(all, info)
	}
	return all
}

func whatIsPutIsReadable(t *testing.T, b bucket.Bucket) {
	for i, size := range []int{0, 1, 4096, 64<<10 - 1, 1 << 20, 1<<20 + 1} {
		key := fmt.Sprintf("objects/%d.bin", size)
		want := Bytes(uint64(i), size)
		put(t, b, key, want, bucket.Condition{})
		wantObject(t, b, key, want)
		again := Bytes(uint64(100+i), size/2)
		put(t, b, key, again, bucket.Condition{})
		wantObject(t, b, key, again)
	}
}

// wantObject looks at an object by every way there is.
func wantObject(t *testing.T, b bucket.Bucket, key string, want []byte) {
	t.Helper()
	got, v := get(t, b, key)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes were read that aren't the %d written", key, len(got), len(want))
	}
	info, err := b.Stat(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != key || info.Bytes != int64(len(want)) || info.Version != v || info.Modified.IsZero() {
		t.Fatalf("stat %s says %+v; get says version %s of %d bytes", key, info, v, len(want))
	}
	if l := list(t, b, key); len(l) != 1 || l[0].Key != key || l[0].Bytes != info.Bytes || l[0].Version != v {
		t.Fatalf("list %s says %+v; stat says %+v", key, l, info)
	}
}

func bigObjects(t *testing.T, b bucket.Bucket) {
	want := Bytes(1, 32*mib)
	v := put(t, b, "packs/big.pack", want, bucket.Condition{Absent: true})
	got, read := get(t, b, "packs/big.pack")
	if !bytes.Equal(got, want) || read != v {
		t.Fatalf("%d bytes at version %s were read; %d at %s were written", len(got), read, len(want), v)
	}
	_, err := b.Put(t.Context(), "packs/big.pack", bytes.NewReader(want[:32*mib-1]), 32*mib-1, bucket.Condition{Absent: true})
	wantKind(t, "put a big object that is there already", err, bucket.ErrCondition)
	part := make([]byte, 4*mib)
	if err := b.GetRange(t.Context(), "packs/big.pack", part, 27*mib+3); err != nil || !bytes.Equal(part, want[27*mib+3:][:4*mib]) {
		t.Fatalf("a range of a big object is not what was written: %v", err)
	}
}

func rangesAreExact(t *testing.T, b bucket.Bucket) {
	want := Bytes(7, 100_000)
	put(t, b, "r", want, bucket.Condition{})
	for _, r := range [][2]int{{0, 1}, {0, 100_000}, {99_999, 1}, {1, 4095}, {65_535, 2}, {50_000, 50_000}} {
		dst := make([]byte, r[1])
		if err := b.GetRange(t.Context(), "r", dst, int64(r[0])); err != nil {
			t.Fatalf("%d bytes at %d: %v", r[1], r[0], err)
		}
		if !bytes.Equal(dst, want[r[0]:][:r[1]]) {
			t.Fatalf("%d bytes at %d are not what was written", r[1], r[0])
		}
	}
	for _, r := range [][2]int{{0, 100_001}, {99_999, 2}, {100_000, 1}, {1 << 40, 10}} {
		wantKind(t, fmt.Sprintf("%d bytes at %d of 100000", r[1], r[0]), b.GetRange(t.Context(), "r", make([]byte, r[1]), int64(r[0])), bucket.ErrShort)
	}
	if err := b.GetRange(t.Context(), "r", nil, 10); err != nil {
		t.Fatalf("no bytes: %v", err)
	}
	if err := b.GetRange(t.Context(), "r", make([]byte, 1), -1); err == nil {
		t.Fatal("a negative offset is read")
	}
	put(t, b, "empty", nil, bucket.Condition{})
	wantKind(t, "a byte of an empty object", b.GetRange(t.Context(), "empty", make([]byte, 1), 0), bucket.ErrShort)
}

func getHonoursItsLimit(t *testing.T, b bucket.Bucket) {
	put(t, b, "k", Bytes(1, 1000), bucket.Condition{})
	if data, _, err := b.Get(t.Context(), "k", 1000); err != nil || len(data) != 1000 {
		t.Fatalf("exactly the limit: %d bytes, %v", len(data), err)
	}
	_, _, err := b.Get(t.Context(), "k", 999)
	wantKind(t, "one byte more than the limit", err, bucket.ErrTooLarge)
}

func absentObjects(t *testing.T, b bucket.Bucket) {
	put(t, b, "folder/there", []byte("x"), bucket.Condition{})
	for _, key := range []string{"nothing", "folder", "folder/nothing", "no/such/folder"} {
		_, _, err := b.Get(t.Context(), key, 10)
		wantKind(t, "get "+key, err, bucket.ErrNotFound)
		_, err = b.Stat(t.Context(), key)
		wantKind(t, "stat "+key, err, bucket.ErrNotFound)
		wantKind(t, "get a range of "+key, b.GetRange(t.Context(), key, make([]byte, 1), 0), bucket.ErrNotFound)
	}
}

func shortSource(t *testing.T, b bucket.Bucket) {
	if _, err := b.Put(t.Context(), "k", bytes.NewReader([]byte("only this")), 1000, bucket.Condition{}); err == nil {
		t.Fatal("a source that is shorter than it says was written")
	}
	_, err := b.Stat(t.Context(), "k")
	wantKind(t, "stat after a put that failed", err, bucket.ErrNotFound)
	broken := brokenReader{errors.New("the disk below the source fails")}
	_, err = b.Put(t.Context(), "k", broken, 1000, bucket.Condition{})
	wantKind(t, "put from a source that fails", err, broken.err)
	if errors.Is(err, bucket.ErrUnavailable) {
		t.Fatalf("the source's failure is blamed on the bucket: %v", err)
	}
}

type brokenReader struct{ err error }

func (b brokenReader) ReadAt([]byte, int64) (int, error) { return 0, b.err }

func keysThatEscape(t *testing.T, b bucket.Bucket) {
	for _, key := range []string{"", "/abs", "a/../../x", "..", "a//b", "a/", "a\x00b"} {
		_, err := b.Put(t.Context(), key, bytes.NewReader(nil), 0, bucket.Condition{})
		wantKind(t, fmt.Sprintf("put %q", key), err, bucket.ErrKey)
		_, _, err = b.Get(t.Context(), key, 1)
		wantKind(t, fmt.Sprintf("get %q", key), err, bucket.ErrKey)
		wantKind(t, fmt.Sprintf("get a range of %q", key), b.GetRange(t.Context(), key, nil, 0), bucket.ErrKey)
		_, err = b.Stat(t.Context(), key)
		wantKind(t, fmt.Sprintf("stat %q", key), err, bucket.ErrKey)
		wantKind(t, fmt.Sprintf("delete %q", key), b.Delete(t.Context(), key), bucket.ErrKey)
	}
	for _, err := range b.List(t.Context(), "../") {
		wantKind(t, "list ../", err, bucket.ErrKey)
	}
	_, err := b.Put(t.Context(), "k", bytes.NewReader(nil), 0, bucket.Condition{Absent: true, Match: "v"})
	wantKind(t, "put with two conditions", err, bucket.ErrKey)
}

func oddKeys(t *testing.T, b bucket.Bucket) {
	keys := []string{"UPPER", "upper", ".dot", "dot.", "a b", "per%20cent", "plus+plus", "~", "x/=ff00", "q?a=b&c#d", "star*", `back\slash`,
		"con", "colon:", "quo\"te'", "<xml>&amp;", "deep/er/and/deeper/still", "[x]{y}|^`"}
	for i, key := range keys {
		put(t, b, key, []byte{byte(i)}, bucket.Condition{Absent: true})
	}
	for i, key := range keys {
		wantObject(t, b, key, []byte{byte(i)})
	}
	if n := len(list(t, b, "")); n != len(keys) {
		t.Fatalf("%d keys are listed, %d are there", n, len(keys))
	}
	for _, key := range keys {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if l := list(t, b, ""); len(l) > 0 {
		t.Fatalf("after all were deleted there is still %+v", l)
	}
}

func deletingNothing(t *testing.T, b bucket.Bucket) {
	for range 2 {
		if err := b.Delete(t.Context(), "never/was"); err != nil {
			t.Fatal(err)
		}
	}
	put(t, b, "k", []byte("x"), bucket.Condition{})
	for range 2 {
		if err := b.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Stat(t.Context(), "k")
	wantKind(t, "stat after delete", err, bucket.ErrNotFound)
	put(t, b, "k", []byte("y"), bucket.Condition{Absent: true})
}

func cancelledCalls(t *testing.T, b bucket.Bucket) {
	put(t, b, "k", []byte("x"), bucket.Condition{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, "k", bytes.NewReader([]byte("y")), 1, bucket.Condition{})
	wantKind(t, "put", err, context.Canceled)
	_, _, err = b.Get(ctx, "k", 10)
	wantKind(t, "get", err, context.Canceled)
	wantKind(t, "get a range", b.GetRange(ctx, "k", make([]byte, 1), 0), context.Canceled)
	wantKind(t, "delete", b.Delete(ctx, "k"), context.Canceled)
	_, err = b.Stat(ctx, "k")
	wantKind(t, "stat", err, context.Canceled)
	for _, err := range b.List(ctx, "") {
		wantKind(t, "list", err, context.Canceled)
	}
	wantObject(t, b, "k", []byte("x"))
}

var _ io.ReaderAt = brokenReader{}
