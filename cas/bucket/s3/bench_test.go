package s3_test

import (
	"bytes"
	"fmt"
	"testing"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
)

// BenchmarkPut writes packs one after another: MB/s of a single stream, and what it allocates.
func BenchmarkPut(b *testing.B) {
	if server == nil {
		b.Skip("there is no S3 server")
	}
	store := open(b, config(b, server, ""))
	data := buckettest.Bytes(1, 32<<20)
	if _, err := store.Put(b.Context(), "warm", bytes.NewReader(nil), 0, bucket.Condition{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		if _, err := store.Put(b.Context(), fmt.Sprintf("packs/%d", n%4), bytes.NewReader(data), int64(len(data)), bucket.Condition{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGetRange reads windows: µs of a request of 256 KiB.
func BenchmarkGetRange(b *testing.B) {
	if server == nil {
		b.Skip("there is no S3 server")
	}
	store := open(b, config(b, server, ""))
	data := buckettest.Bytes(1, 32<<20)
	if _, err := store.Put(b.Context(), "pack", bytes.NewReader(data), int64(len(data)), bucket.Condition{}); err != nil {
		b.Fatal(err)
	}
	window := make([]byte, 256<<10)
	b.SetBytes(int64(len(window)))
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		if err := store.GetRange(b.Context(), "pack", window, at); err != nil {
			b.Fatal(err)
		}
		at = (at + 7*int64(len(window))) % (int64(len(data)) - int64(len(window)))
	}
}
