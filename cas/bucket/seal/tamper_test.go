package seal

import (
	"bytes"
	"errors"
	"testing"

	"flash/cas/bucket"
)

// refused reads an object in every way and wants each to refuse it.
func refused(t *testing.T, b *Bucket, key string, plainBytes int, what string) {
	t.Helper()
	if _, _, err := b.Get(t.Context(), key, 1<<30); !errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("%s: Get says %v, want ErrIntegrity", what, err)
	}
	if err := b.GetRange(t.Context(), key, make([]byte, plainBytes), 0); !errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("%s: GetRange says %v, want ErrIntegrity", what, err)
	}
}

func TestEveryFlippedByteIsRefused(t *testing.T) {
	const n = segmentBytes + 300
	below := newMem()
	k := testKeys(1)
	b := Wrap(below, k)
	mustPut(t, b, "packs/a", plainOf(n))
	stored := b.ListedKey("packs/a")
	whole := below.object(stored)
	for i := range whole {
		// Every byte of the header, of the edges and of the small segment; of the large one's inside every 97th: one GCM
		// tag covers them all, and each try opens 64 KiB.
		inside := i > headerBytes+200 && i < headerBytes+sealedSegBytes-200
		if inside && i%97 != 0 {
			continue
		}
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		_, err := k.open(damaged, stored)
		if !errors.Is(err, bucket.ErrIntegrity) && !(i == 6 && errors.Is(err, errVersion)) {
			t.Fatalf("byte %d of %d flipped: %v", i, len(whole), err)
		}
	}
	for _, i := range []int{0, 7, 8, 39, headerBytes, headerBytes + segmentBytes, headerBytes + sealedSegBytes, len(whole) - 1} {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x80
		below.set(stored, damaged)
		refused(t, Wrap(below, k), "packs/a", n, "flipped")
		refused(t, b, "packs/a", n, "flipped, of an object known before")
	}
}

func TestARangeIsServedWhenOtherSegmentsAreDamaged(t *testing.T) {
	below := newMem()
	b := Wrap(below, testKeys(1))
	plain := plainOf(3 * segmentBytes)
	mustPut(t, b, "packs/a", plain)
	stored := b.ListedKey("packs/a")
	damaged := below.object(stored)
	damaged[headerBytes+sealedSegBytes+7] ^= 1
	below.set(stored, damaged)
	dst := make([]byte, segmentBytes)
	if err := b.GetRange(t.Context(), "packs/a", dst, 2*segmentBytes); err != nil || !bytes.Equal(dst, plain[2*segmentBytes:]) {
		t.Errorf("a whole segment beside a damaged one: %v", err)
	}
	if err := b.GetRange(t.Context(), "packs/a", dst[:1], 2*segmentBytes-1); !errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("the damaged segment: %v", err)
	}
}

func TestObjectsCutOrExtendedAreRefused(t *testing.T) {
	for _, n := range []int{1, segmentBytes, 2 * segmentBytes, 3*segmentBytes + 5} {
		below := newMem()
		k := testKeys(1)
		mustPut(t, Wrap(below, k), "packs/a", plainOf(n))
		stored := k.storedKey("packs/a")
		whole := below.object(stored)
		var cuts []int
		for end := headerBytes; end < len(whole); end += sealedSegBytes {
			cuts = append(cuts, end-1, end, end+1, end+tagBytes, end+tagBytes+1)
		}
		for _, end := range append(cuts, 0, headerBytes-1, len(whole)-1) {
			if end >= len(whole) {
				continue
			}
			below.set(stored, whole[:end])
			refused(t, Wrap(below, k), "packs/a", n, "cut")
			// A range that the cut object still has may be served, one that it ends before isn't said to be beyond its end.
			if err := Wrap(below, k).GetRange(t.Context(), "packs/a", make([]byte, 1), int64(n-1)); err != nil && !errors.Is(err, bucket.ErrIntegrity) {
				t.Errorf("%d bytes cut to %d: its last byte: %v, want ErrIntegrity", n, end, err)
			}
		}
		tail := whole[len(whole)-min(len(whole)-headerBytes, sealedSegBytes):]
		for what, more := range map[string][]byte{
			"a byte": {0}, "a tag": make([]byte, tagBytes), "its own last segment": tail, "a segment of zeros": make([]byte, sealedSegBytes),
		} {
			longer := append(bytes.Clone(whole), more...)
			below.set(stored, longer)
			if _, _, err := Wrap(below, k).Get(t.Context(), "packs/a", 1<<30); !errors.Is(err, bucket.ErrIntegrity) {
				t.Errorf("%d bytes and %s: %v", n, what, err)
			}
			if err := Wrap(below, k).GetRange(t.Context(), "packs/a", make([]byte, n+1), 0); !errors.Is(err, bucket.ErrIntegrity) {
				t.Errorf("a range of %d bytes and %s: %v", n, what, err)
			}
		}
	}
}

func TestSegmentsAndObjectsInAnothersPlaceAreRefused(t *testing.T) {
	const n = 3 * segmentBytes
	below := newMem()
	k := testKeys(1)
	b := Wrap(below, k)
	mustPut(t, b, "packs/a", plainOf(n))
	mustPut(t, b, "packs/b", plainOf(n)) // the same bytes, even
	mustPut(t, b, "vms/a", plainOf(n))
	a, other := below.object(b.ListedKey("packs/a")), below.object(b.ListedKey("packs/b"))
	segment := func(o []byte, i int) []byte { return o[headerBytes+i*sealedSegBytes:][:sealedSegBytes] }

	swapped := bytes.Clone(a)
	copy(segment(swapped, 0), segment(a, 1))
	copy(segment(swapped, 1), segment(a, 0))
	foreign := bytes.Clone(a)
	copy(segment(foreign, 1), segment(other, 1))
	mustPut(t, b, "packs/a", append(plainOf(n-1), 'x')) // a later state
	later := below.object(b.ListedKey("packs/a"))
	mixed := bytes.Clone(later)
	copy(segment(mixed, 0), segment(a, 0))

	for what, object := range map[string][]byte{
		"two segments changed places": swapped, "a segment of another object": foreign, "another object": other,
		"an object of another folder": below.object(b.ListedKey("vms/a")), "a segment of an earlier state": mixed,
	} {
		below.set(b.ListedKey("packs/a"), object)
		refused(t, Wrap(below, k), "packs/a", n, what)
	}
	renamed := "packs/" + opaqueMark + "00000000000000000000000000000000000000000000000000000000000000ff"
	below.set(renamed, other)
	refused(t, Wrap(below, k), renamed, n, "a renamed object")
}

func TestAnotherRemotesKeyOpensNothing(t *testing.T) {
	below := newMem()
	mustPut(t, Wrap(below, testKeys(1)), "vms/a", plainOf(50))
	b := Wrap(below, testKeys(2))
	if _, _, err := b.Get(t.Context(), "vms/a", 100); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("under its plain name: %v", err)
	}
	for info, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		refused(t, b, info.Key, 50, "another remote's object")
	}
}

func TestNamesAndBytesTellNothingAboutKnownContent(t *testing.T) {
	plain := bytes.Repeat([]byte("the contents of a well-known file. "), 5000)
	one, two := newMem(), newMem()
	mustPut(t, Wrap(one, testKeys(1)), "packs/5f6d.pack", plain)
	mustPut(t, Wrap(two, testKeys(2)), "packs/5f6d.pack", plain)
	for key, o := range one.objects {
		if bytes.Contains([]byte(key), []byte("5f6d")) || bytes.Contains(o, plain[:16]) {
			t.Errorf("%s tells its name or its content", key)
		}
		for key2, o2 := range two.objects {
			if key == key2 || bytes.Equal(o[headerBytes-saltBytes:headerBytes], o2[headerBytes-saltBytes:headerBytes]) ||
				bytes.Equal(o[headerBytes:headerBytes+64], o2[headerBytes:headerBytes+64]) {
				t.Error("two remotes show that they hold the same")
			}
		}
	}
	mustPut(t, Wrap(one, testKeys(1)), "packs/5f6e.pack", plain)
	objects := map[string]bool{}
	for _, o := range one.objects {
		objects[string(o[headerBytes:])] = true
	}
	if len(objects) != 2 {
		t.Error("two objects of one remote show that they hold the same")
	}
}

func TestAnObjectOfALaterVersionIsNotCalledDamaged(t *testing.T) {
	below := newMem()
	b := Wrap(below, testKeys(1))
	mustPut(t, b, "vms/a", plainOf(5))
	o := below.object(b.ListedKey("vms/a"))
	o[6] = 2
	below.set(b.ListedKey("vms/a"), o)
	if _, _, err := b.Get(t.Context(), "vms/a", 9); !errors.Is(err, errVersion) || errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("%v", err)
	}
}
