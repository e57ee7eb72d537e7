package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
	"flash/cas/remote"
)

// mustBeWhole checks that every pack a catalogue of the bucket names is there, and is what the catalogue says.
func mustBeWhole(t testing.TB, b *memoryBucket, when string) {
	t.Helper()
	for _, key := range b.keys("catalog/") {
		_, _, packs, err := remote.DecodeCatalogue(b.objects[key])
		if err != nil {
			t.Fatalf("%s: %s: %v", when, key, err)
		}
		for _, p := range packs {
			object, ok := b.objects["packs/"+pack.FileName(p.ContentHash)]
			if !ok {
				t.Fatalf("%s: %s names pack %s, which isn't there", when, key, p.ContentHash)
			}
			sealed, err := pack.OpenSealed(bytes.NewReader(object), p.Bytes)
			if err != nil || sealed.ContentHash != p.ContentHash || sealed.CheckContent() != nil || int64(len(object)) != p.Bytes {
				t.Fatalf("%s: pack %s isn't whole: %v", when, p.ContentHash, err)
			}
		}
	}
}

// story is what the crash tests do to a bucket, again and again until it succeeds: uploads, and drops of some of it.
type story struct{ first, second, going []made }

func newStory(t testing.TB) story {
	s := story{first: somePacks(t, 1, 4, 20), second: somePacks(t, 2, 3, 20)}
	s.going = append([]made{s.first[1], s.first[2]}, s.second[0])
	return s
}

func (s story) run(ctx context.Context, r *remote.Remote) error {
	if err := r.Refresh(ctx); err != nil {
		return err
	}
	if _, err := r.Upload(ctx, sources(s.first), nil); err != nil {
		return err
	}
	if _, err := r.Upload(ctx, sources(s.second), nil); err != nil {
		return err
	}
	var ids []cas.PackID
	var hashes []cas.Hash
	for _, p := range s.going {
		ids, hashes = append(ids, p.ID), append(hashes, p.ContentHash)
	}
	if _, err := r.Drop(ctx, ids); err != nil {
		return err
	}
	return r.RemoveObjects(ctx, hashes)
}

// check looks at a bucket in which the story has come to its end.
func (s story) check(t *testing.T, b *memoryBucket, when string) {
	t.Helper()
	mustBeWhole(t, b, when)
	if n := len(b.keys("packs/")); n != 4 {
		t.Fatalf("%s: %d packs are left: %q", when, n, b.keys(""))
	}
	r := mustOpen(t, remote.Config{Bucket: b})
	mustRead(t, r, []made{s.first[0], s.first[3], s.second[1], s.second[2]})
	for _, p := range s.going {
		if _, err := r.Get(t.Context(), p.refs[0], nil); !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("%s: a dropped chunk: %v", when, err)
		}
	}
}

func TestBucketCopiedAtAnyInstantNamesWholePacksOnly(t *testing.T) {
	s := newStory(t)
	b := newBucket()
	copies := 0
	b.setFault(func(op int, verb, key string, done bool) error {
		copies++
		mustBeWhole(t, b.copy(), fmt.Sprintf("operation %d, %s %s, done %v", op, verb, key, done))
		return nil
	})
	if err := s.run(t.Context(), mustOpen(t, remote.Config{Bucket: b, InFlight: 4})); err != nil {
		t.Fatal(err)
	}
	s.check(t, b.copy(), "at the end")
	if copies < 20 {
		t.Errorf("only %d copies were looked at", copies)
	}
}

// A kill is an operation of which nobody learns whether it was done, and the end of the process.
func TestKillAtAnyOperationLosesNothingAndConverges(t *testing.T) {
	s := newStory(t)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := newBucket()
			dir := t.TempDir()
			failed := b.nth(n, after)
			ctx, kill := context.WithCancel(t.Context())
			fault := b.fault
			b.fault = func(op int, verb, key string, done bool) error {
				err := fault(op, verb, key, done)
				if err != nil {
					kill()
				}
				return err
			}
			err := s.run(ctx, mustOpen(t, remote.Config{Bucket: b, CacheDir: dir, InFlight: 2}))
			kill()
			when := fmt.Sprintf("killed at operation %d, done %v", n, after)
			if !*failed {
				if err != nil {
					t.Fatal(err)
				}
				if n < 15 {
					t.Errorf("only %d operations were tried", n-1)
				}
				break
			}
			if err == nil {
				t.Fatalf("%s: no error", when)
			}
			b.setFault(nil)
			mustBeWhole(t, b, when)
			if err := s.run(t.Context(), mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			// The first run may have dropped packs, which the second has uploaded and dropped again: the end is the same.
			s.check(t, b, when)
		}
	}
}

func TestFailedOperationIsToldAndTheNextCallGoesOn(t *testing.T) {
	s := newStory(t)
	for n := 1; ; n++ {
		b := newBucket()
		r := mustOpen(t, remote.Config{Bucket: b, InFlight: 3})
		failed := b.nth(n, n%2 == 0)
		err := s.run(t.Context(), r)
		if !*failed && n > 30 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if *failed && !errors.Is(err, bucket.ErrUnavailable) {
			t.Fatalf("operation %d: %v", n, err)
		}
		b.setFault(nil)
		if err := s.run(t.Context(), r); err != nil { // the same process
			t.Fatalf("operation %d: %v", n, err)
		}
		s.check(t, b, fmt.Sprintf("operation %d failed", n))
	}
}

func TestInterruptedUploadMovesOnlyTheRest(t *testing.T) {
	packs := somePacks(t, 1, 6, 900) // some 2 MB each
	b := newBucket()
	puts := 0
	b.setFault(func(op int, verb, key string, done bool) error {
		if verb == "put" && !done && strings.HasPrefix(key, "packs/") {
			if puts++; puts > 4 {
				return errOutage
			}
		}
		return nil
	})
	r := mustOpen(t, remote.Config{Bucket: b, InFlight: 1})
	st, err := r.Upload(t.Context(), sources(packs), nil)
	if !errors.Is(err, bucket.ErrUnavailable) || st.NewPacks != 4 {
		t.Fatalf("%+v, %v", st, err)
	}
	b.setFault(nil)
	r = mustOpen(t, remote.Config{Bucket: b})
	var told, total int64
	st, err = r.Upload(t.Context(), sources(packs), func(done, all int64) {
		if done < told {
			t.Errorf("progress went from %d to %d", told, done)
		}
		told, total = done, all
	})
	if err != nil || st.NewPacks != 2 || st.NewBytes != packs[4].Bytes+packs[5].Bytes {
		t.Errorf("%+v, %v", st, err)
	}
	if told != total || total == 0 {
		t.Errorf("progress ended at %d of %d", told, total)
	}
	mustRead(t, mustOpen(t, remote.Config{Bucket: b}), packs)
}

func TestDamagedSourceIsNotSent(t *testing.T) {
	p := somePacks(t, 1, 1, 50)[0]
	for i := 0; i < len(p.bytes); i += 997 {
		b := newBucket()
		spoilt := bytes.Clone(p.bytes)
		spoilt[i] ^= 1
		source := p.PackSource
		source.Reader = bytes.NewReader(spoilt)
		_, err := mustOpen(t, remote.Config{Bucket: b}).Upload(t.Context(), []remote.PackSource{source}, nil)
		if !errors.Is(err, pack.ErrDamaged) || len(b.objects) > 0 {
			t.Fatalf("byte %d flipped: %d objects, %v", i, len(b.objects), err)
		}
	}
	b := newBucket()
	_, err := mustOpen(t, remote.Config{Bucket: b, Key: &[32]byte{1}}).Upload(t.Context(), sources([]made{p}), nil)
	if !errors.Is(err, remote.ErrWrongKey) || len(b.objects) > 0 {
		t.Errorf("named with another key: %v", err)
	}
}

// A put that isn't atomic, or a hand, may leave half an object under a pack's name. It is put right, not taken for the pack.
func TestHalfAPackIsNotTakenForThePack(t *testing.T) {
	packs := somePacks(t, 1, 2, 900)
	small := somePacks(t, 2, 1, 5)
	for _, p := range append(packs, small...) {
		b := newBucket()
		b.objects["packs/"+pack.FileName(p.ContentHash)] = p.bytes[:len(p.bytes)/2]
		st := mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), []made{p})
		if st.NewPacks != 1 {
			t.Errorf("%+v", st)
		}
		mustBeWhole(t, b, "after the upload")
	}
}
