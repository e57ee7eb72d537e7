package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/castest"
	"flash/cas/pack"
	"flash/cas/remote"
)

// uploaded gives a bucket with packs in it.
func uploaded(t testing.TB, packs []made) *memoryBucket {
	t.Helper()
	b := newBucket()
	mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), packs)
	return b
}

// getAll reads refs together and wants each to succeed.
func getAll(t testing.TB, r *remote.Remote, p made) {
	t.Helper()
	err := r.GetMany(t.Context(), p.refs, func(i int, data []byte, err error) error {
		if err == nil && !bytes.Equal(data, p.chunks[i].Data) {
			err = errors.New("other bytes")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func requests(b *memoryBucket, f func()) (ops, gets int) {
	ops, gets = b.count()
	f()
	o, g := b.count()
	return o - ops, g - gets
}

func TestNeighboursAreFetchedTogether(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 2600)) // some 6 MB
	b := uploaded(t, []made{p})
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: t.TempDir()})
	mustRefresh(t, r)
	least := int((p.Bytes + 4<<20 - 1) / (4 << 20))
	if _, n := requests(b, func() { getAll(t, r, p) }); n < least || n > least+1 {
		t.Errorf("%d requests for %d bytes", n, p.Bytes)
	}
	if n, _ := requests(b, func() { getAll(t, r, p) }); n != 0 {
		t.Errorf("%d requests for what is cached", n)
	}
	if st := r.Stats(); st.FetchedBytes < p.Bytes*9/10 || st.FetchedBytes > p.Bytes {
		t.Errorf("%d bytes were fetched of %d", st.FetchedBytes, p.Bytes)
	}
	if n, _ := requests(b, func() {
		other := mustOpen(t, remote.Config{Bucket: b})
		mustRefresh(t, other)
		if _, err := other.Get(t.Context(), p.refs[700], nil); err != nil {
			t.Error(err)
		}
		if st := other.Stats(); st.FetchedBytes > 2*remote.WindowBytes {
			t.Errorf("%d bytes were fetched for a chunk", st.FetchedBytes)
		}
	}); n != 3 { // list, catalogue, window
		t.Errorf("%d requests for one chunk", n)
	}
}

func TestWindowIsFetchedOnceHoweverManyAsk(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 80)) // one window
	b := uploaded(t, []made{p})
	synctest.Test(t, func(t *testing.T) {
		r := mustOpen(t, remote.Config{Bucket: b})
		mustRefresh(t, r)
		answer := make(chan struct{})
		b.setFault(func(_ int, verb, _ string, _ bool) error {
			if verb == "range" {
				<-answer
			}
			return nil
		})
		for i := range 16 {
			go func() {
				n := i % 4 // all in the first window
				if got, err := r.Get(t.Context(), p.refs[n], nil); err != nil || !bytes.Equal(got, p.chunks[n].Data) {
					t.Errorf("reader %d: %v", i, err)
				}
			}()
		}
		synctest.Wait() // all wait for the one request
		close(answer)
		synctest.Wait()
		if _, gets := b.count(); gets != 1 {
			t.Errorf("%d requests", gets)
		}
		b.setFault(nil)
	})
}

// The first reader gives up while its request runs: the second one, who waits for the same window, doesn't suffer.
func TestReaderWhoLeavesTakesNobodyAlong(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 20))
	b := uploaded(t, []made{p})
	synctest.Test(t, func(t *testing.T) {
		r := mustOpen(t, remote.Config{Bucket: b})
		mustRefresh(t, r)
		ctx, leave := context.WithCancel(t.Context())
		first := true
		b.setFault(func(_ int, verb, _ string, _ bool) error {
			if verb == "range" && first {
				first = false
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		go func() {
			if _, err := r.Get(ctx, p.refs[0], nil); !errors.Is(err, context.Canceled) {
				t.Errorf("who left: %v", err)
			}
		}()
		synctest.Wait()
		go func() {
			if _, err := r.Get(t.Context(), p.refs[1], nil); err != nil {
				t.Errorf("who stayed: %v", err)
			}
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		b.setFault(nil)
	})
}

// The bucket answers lists, and not reads: what the catalogue names isn't lost, and not each of many reads waits for itself.
func TestSilentPacksAreNotLost(t *testing.T) {
	packs := somePacks(t, 1, 20, 5)
	b := uploaded(t, packs)
	r := mustOpen(t, remote.Config{Bucket: b, InFlight: 2})
	b.setFault(func(_ int, verb, _ string, _ bool) error {
		if verb == "range" {
			return errOutage
		}
		return nil
	})
	var refs []cas.Ref
	for _, p := range packs {
		refs = append(refs, p.refs...)
	}
	for _, hints := range []bool{true, false} {
		if _, err := r.Get(t.Context(), bytesRefs(refs, hints)[0], nil); !errors.Is(err, bucket.ErrUnavailable) || isPermanent(err) {
			t.Errorf("hints %v: %v", hints, err)
		}
		calls := 0
		ops, _ := requests(b, func() {
			err := r.GetMany(t.Context(), bytesRefs(refs, hints), func(_ int, _ []byte, err error) error {
				if calls++; !errors.Is(err, bucket.ErrUnavailable) || isPermanent(err) {
					t.Errorf("hints %v, of many: %v", hints, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if calls != len(refs) || ops > 4 {
			t.Errorf("hints %v: %d of %d answered, %d requests", hints, calls, len(refs), ops)
		}
	}
}

func TestOutageIsNoLossAndEnds(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 400))
	b := uploaded(t, []made{p})
	dir := t.TempDir()
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
	b.setFault(func(int, string, string, bool) error { return errOutage })
	check := func(err error) {
		t.Helper()
		if !errors.Is(err, bucket.ErrUnavailable) || isPermanent(err) {
			t.Errorf("%v", err)
		}
	}
	for range 2 { // before the first Refresh, and after it
		_, err := r.Get(t.Context(), p.refs[0], nil)
		check(err)
		_, err = r.Get(t.Context(), cas.Ref{Hash: cas.Hash{1}}, nil)
		check(err)
		calls := 0
		ops, _ := requests(b, func() {
			err = r.GetMany(t.Context(), p.refs, func(_ int, _ []byte, err error) error {
				calls++
				check(err)
				return nil
			})
		})
		if err != nil || calls != len(p.refs) || ops > 8 {
			t.Errorf("%d of %d answered, %d requests: %v", calls, len(p.refs), ops, err)
		}
		b.setFault(func(_ int, verb, _ string, _ bool) error { return nil })
		mustRefresh(t, r)
		b.setFault(func(int, string, string, bool) error { return errOutage })
	}
	b.setFault(nil)
	getAll(t, r, p)

	// What was fetched is there during the next outage, in the next process too.
	b.setFault(func(int, string, string, bool) error { return errOutage })
	r = mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
	getAll(t, r, p)
	if r.Has([]cas.Hash{p.chunks[0].Hash})[0] {
		t.Error("Has trusts the cached catalogue")
	}
}

func isPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

func TestLossIsPermanentAndSaysWhat(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 400))
	key := "packs/" + pack.FileName(p.ContentHash)
	for name, c := range map[string]struct {
		spoil func([]byte) []byte
		want  error
	}{
		"removed": {func([]byte) []byte { return nil }, cas.ErrNotFound},
		"cut":     {func(p []byte) []byte { return p[:100] }, cas.ErrCorrupt},
		"swapped": {func(p []byte) []byte { return bytes.Repeat([]byte{7}, len(p)) }, cas.ErrCorrupt},
		"flipped": {func(b []byte) []byte { b[p.refs[5].Hint.Offset+50] ^= 1; return b }, cas.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			b := uploaded(t, []made{p})
			b.change(key, c.spoil)
			for _, dir := range []string{"", t.TempDir()} {
				r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
				for range 2 {
					_, err := r.Get(t.Context(), p.refs[5], nil)
					if !errors.Is(err, c.want) || !isPermanent(err) {
						t.Errorf("Get: %v", err)
					}
					err = r.GetMany(t.Context(), p.refs[:10], func(i int, data []byte, err error) error {
						if i == 5 && !errors.Is(err, c.want) || err == nil && !bytes.Equal(data, p.chunks[i].Data) {
							t.Errorf("GetMany, chunk %d: %v", i, err)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func TestStaleHintsLeadToTheCatalogue(t *testing.T) {
	packs := somePacks(t, 1, 2, 200)
	b := uploaded(t, packs)
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: t.TempDir()})
	mustRefresh(t, r)
	good := packs[0].refs[4].Hint
	for name, hint := range map[string]cas.Hint{
		"none": {}, "of another chunk": packs[0].refs[5].Hint, "of another pack": {Pack: packs[1].ID, Offset: good.Offset, Bytes: good.Bytes},
		"of a pack that is gone": {Pack: cas.PackID{9}, Offset: 64, Bytes: 100},
		"amid a record":          {Pack: good.Pack, Offset: good.Offset + 1, Bytes: good.Bytes},
		"too short":              {Pack: good.Pack, Offset: good.Offset, Bytes: good.Bytes - 1},
		"nothing long":           {Pack: good.Pack, Offset: good.Offset},
		"beyond":                 {Pack: good.Pack, Offset: 1 << 31, Bytes: 1 << 31},
		"overflowing":            {Pack: good.Pack, Offset: 1<<32 - 1, Bytes: 1<<32 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			ref := cas.Ref{Hash: packs[0].chunks[4].Hash, Hint: hint}
			got, err := r.Get(t.Context(), ref, []byte("x"))
			if err != nil || !bytes.Equal(got[1:], packs[0].chunks[4].Data) {
				t.Errorf("Get: %v", err)
			}
			calls := 0
			err = r.GetMany(t.Context(), []cas.Ref{packs[0].refs[1], ref}, func(i int, data []byte, err error) error {
				calls++
				if want := packs[0].chunks[[]int{1, 4}[i]].Data; err != nil || !bytes.Equal(data, want) {
					t.Errorf("GetMany: ref %d: %v", i, err)
				}
				return nil
			})
			if err != nil || calls != 2 {
				t.Errorf("GetMany: %d calls, %v", calls, err)
			}
		})
	}
}

func TestGetManyEndsWithTheErrorOfEach(t *testing.T) {
	packs := somePacks(t, 1, 3, 300)
	r := mustOpen(t, remote.Config{Bucket: uploaded(t, packs)})
	mustRefresh(t, r)
	var refs []cas.Ref
	for _, p := range packs {
		refs = append(refs, p.refs...)
	}
	enough := errors.New("enough")
	calls := 0
	err := r.GetMany(t.Context(), refs, func(int, []byte, error) error {
		if calls++; calls == 10 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 10 {
		t.Errorf("%d calls, %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.GetMany(ctx, refs, func(int, []byte, error) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := r.Get(ctx, refs[0], nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRecordsOverTheEdgesOfWindowsAndSpansAreRead(t *testing.T) {
	h := cas.NewHasher(nil)
	var chunks []cas.Chunk
	for i := range 14 { // of up to 1 MiB that don't compress: some over four edges, some over a span's
		n := 1<<20 - i*77_777%900_000
		noise := castest.Chunks(h, uint64(i+1), 8)[7].Data
		data := bytes.Clone(noise)
		for seed := uint64(1000 * (i + 1)); len(data) < n; seed++ {
			data = append(data, castest.Chunks(h, seed, 8)[7].Data...)
		}
		data = data[:n]
		chunks = append(chunks, cas.Chunk{Hash: h.Sum(data), Kind: cas.KindNode, Data: data})
	}
	p := makePack(t, 1, chunks)
	b := uploaded(t, []made{p})
	for i, dir := range []string{t.TempDir(), ""} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
			for range 2 {
				mustRead(t, r, []made{p})
			}
		})
	}
}
