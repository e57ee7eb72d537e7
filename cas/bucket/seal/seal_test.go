package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"flash/cas/bucket"
)

// edgeSizes are those at which the number of segments, or the last one's room, changes.
var edgeSizes = []int{0, 1, segmentBytes - 1, segmentBytes, segmentBytes + 1, 2 * segmentBytes, 3*segmentBytes + 777}

func TestWhatIsPutComesBackAtEverySize(t *testing.T) {
	for _, n := range edgeSizes {
		below, plain := newMem(), plainOf(n)
		b := Wrap(below, testKeys(1))
		mustPut(t, b, "packs/a.pack", plain)
		mustGet(t, b, "packs/a.pack", plain)

		if got := int64(len(below.object(b.ListedKey("packs/a.pack")))); got != sealedBytesOf(int64(n)) {
			t.Errorf("%d bytes are %d sealed, reckoned %d", n, got, sealedBytesOf(int64(n)))
		}
		info, err := b.Stat(t.Context(), "packs/a.pack")
		if err != nil || info.Bytes != int64(n) {
			t.Errorf("Stat says %d, %v; want %d", info.Bytes, err, n)
		}
		if _, _, err := b.Get(t.Context(), "packs/a.pack", int64(n)); err != nil {
			t.Errorf("an object of just the limit, %d: %v", n, err)
		}
		if _, _, err := b.Get(t.Context(), "packs/a.pack", int64(n)-1); n > 0 && !errors.Is(err, bucket.ErrTooLarge) {
			t.Errorf("an object of %d read with a limit of one less: %v", n, err)
		}
	}
}

func TestSizesOfPlainAndSealedFollowFromEachOther(t *testing.T) {
	for plain := range int64(4 * segmentBytes) {
		if got, ok := plainBytesOf(sealedBytesOf(plain)); !ok || got != plain {
			t.Fatalf("%d plain bytes come back as %d, %v", plain, got, ok)
		}
	}
	possible := map[int64]bool{}
	for plain := range int64(3 * segmentBytes) {
		possible[sealedBytesOf(plain)] = true
	}
	for sealed := int64(-1); sealed < sealedBytesOf(3*segmentBytes-1); sealed++ {
		if _, ok := plainBytesOf(sealed); ok != possible[sealed] {
			t.Fatalf("%d sealed bytes: possible %v, said %v", sealed, possible[sealed], ok)
		}
	}
}

func TestEveryRangeReadsTheSameBytes(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	for _, n := range edgeSizes {
		plain := plainOf(n)
		below := newMem()
		mustPut(t, Wrap(below, testKeys(1)), "packs/a", plain)
		warm := Wrap(below, testKeys(1))
		for range 60 {
			offset := rnd.IntN(n + 1)
			dst := make([]byte, rnd.IntN(n-offset+1))
			if rnd.IntN(3) == 0 { // to the end
				dst = make([]byte, n-offset)
			}
			for _, b := range []*Bucket{warm, Wrap(below, testKeys(1))} {
				clear(dst)
				if err := b.GetRange(t.Context(), "packs/a", dst, int64(offset)); err != nil || !bytes.Equal(dst, plain[offset:offset+len(dst)]) {
					t.Fatalf("%d bytes from %d on of %d: %v, or other bytes (seed %d)", len(dst), offset, n, err, seed)
				}
			}
		}
		for _, beyond := range []struct{ offset, bytes int }{{n, 1}, {0, n + 1}, {n + 1, 0}, {n + 5*segmentBytes, 3}} {
			for _, b := range []*Bucket{warm, Wrap(below, testKeys(1))} {
				err := b.GetRange(t.Context(), "packs/a", make([]byte, beyond.bytes), int64(beyond.offset))
				if !errors.Is(err, bucket.ErrShort) {
					t.Errorf("%d bytes from %d on of %d: %v, want ErrShort", beyond.bytes, beyond.offset, n, err)
				}
			}
		}
	}
	b := Wrap(newMem(), testKeys(1))
	for _, n := range []int{0, 1} {
		if err := b.GetRange(t.Context(), "packs/none", make([]byte, n), 0); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("a range of an absent object: %v", err)
		}
	}
}

func TestARangeFetchesItsSegmentsOnlyAndTheHeaderOnce(t *testing.T) {
	below := newMem()
	mustPut(t, Wrap(below, testKeys(1)), "packs/a", plainOf(10*segmentBytes+5))
	below.requests()
	b := Wrap(below, testKeys(1))
	stored := b.ListedKey("packs/a")
	read := func(bytes, offset int) []string {
		t.Helper()
		if err := b.GetRange(t.Context(), "packs/a", make([]byte, bytes), int64(offset)); err != nil {
			t.Fatal(err)
		}
		return below.requests()
	}
	covering := func(first, segments int) string {
		return fmt.Sprintf("GET %s %d+%d", stored, headerBytes+first*sealedSegBytes, segments*sealedSegBytes)
	}
	if got, want := read(4*segmentBytes, 4*segmentBytes), []string{fmt.Sprintf("GET %s 0+%d", stored, headerBytes), covering(4, 4)}; !slices.Equal(got, want) {
		t.Errorf("the first window asks %q, want %q", got, want)
	}
	if got, want := read(4*segmentBytes, 0), []string{covering(0, 4)}; !slices.Equal(got, want) {
		t.Errorf("the second window asks %q, want %q", got, want)
	}
	if got, want := read(2, 3*segmentBytes-1), []string{covering(2, 2)}; !slices.Equal(got, want) {
		t.Errorf("two bytes across a boundary ask %q, want %q", got, want)
	}
	if got := read(5, 10*segmentBytes); len(got) != 3 {
		t.Errorf("the object's end, not known yet, asks %q; want three requests", got)
	}
	if got := read(5, 10*segmentBytes); len(got) != 1 {
		t.Errorf("the object's end, known, asks %q; want one request", got)
	}
}

func TestARangeOfAnObjectThatIsReplacedMeanwhileIsOfOneState(t *testing.T) {
	old, new := plainOf(3*segmentBytes), plainOf(5*segmentBytes+9)
	below := newMem()
	b, other := Wrap(below, testKeys(1)), Wrap(below, testKeys(1))
	mustPut(t, other, "vms/a", old)
	dst := make([]byte, segmentBytes)
	if err := b.GetRange(t.Context(), "vms/a", dst, segmentBytes); err != nil {
		t.Fatal(err)
	}
	mustPut(t, other, "vms/a", new) // b remembers the old header
	if err := b.GetRange(t.Context(), "vms/a", dst, segmentBytes); err != nil || !bytes.Equal(dst, new[segmentBytes:2*segmentBytes]) {
		t.Errorf("after it was replaced: %v, or other bytes than the new ones", err)
	}
	if err := b.GetRange(t.Context(), "vms/a", dst[:9], 5*segmentBytes); err != nil {
		t.Error(err)
	}
	mustPut(t, other, "vms/a", old) // shorter again
	if err := b.GetRange(t.Context(), "vms/a", dst[:9], 5*segmentBytes); !errors.Is(err, bucket.ErrShort) {
		t.Errorf("beyond the end of the object that became shorter: %v", err)
	}
}

// shyReader refuses reads longer than a segment's: what seals may not ask for more at once than its windows.
type shyReader struct {
	io.ReaderAt
	longest int
	bytes   int // of all reads
}

func (r *shyReader) ReadAt(p []byte, offset int64) (int, error) {
	r.longest = max(r.longest, len(p))
	r.bytes += len(p)
	return r.ReaderAt.ReadAt(p, offset)
}

func TestSealingStreams(t *testing.T) {
	plain := plainOf(40*segmentBytes + 3)
	r := &shyReader{ReaderAt: bytes.NewReader(plain)}
	k := testKeys(1)
	h, err := k.saltOf(t.Context(), "packs/=x", r, int64(len(plain)))
	if err != nil {
		t.Fatal(err)
	}
	s := newSealer(&k.objectKeys, h, "packs/=x", r, int64(len(plain)))
	r.bytes = 0
	whole, err := io.ReadAll(iotest.OneByteReader(io.NewSectionReader(s, 0, s.bytes())))
	if r.bytes != len(plain) {
		t.Errorf("%d bytes were read of %d: small reads in order seal segments again", r.bytes, len(plain))
	}
	if err != nil || int64(len(whole)) != s.bytes() {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	if r.longest > hashWindowBytes {
		t.Errorf("%d bytes were asked for at once: the object is buffered", r.longest)
	}
	for _, at := range []int64{0, 39, 40, headerBytes + sealedSegBytes - 1, headerBytes + sealedSegBytes, s.bytes() - 1} {
		p := make([]byte, min(3*sealedSegBytes, s.bytes()-at))
		if n, err := s.ReadAt(p, at); err != nil && err != io.EOF || n != len(p) || !bytes.Equal(p, whole[at:at+int64(n)]) {
			t.Errorf("read again from %d on: %v, or other bytes than before", at, err)
		}
	}
	if n, err := s.ReadAt(make([]byte, 2), s.bytes()-1); n != 1 || err != io.EOF {
		t.Errorf("across the end: %d, %v", n, err)
	}
	if opened, err := k.open(whole, "packs/=x"); err != nil || !bytes.Equal(opened, plain) {
		t.Errorf("what was streamed doesn't open: %v", err)
	}
}

func TestASourceThatEndsEarlyIsAnErrorAndNothingIsPut(t *testing.T) {
	below := newMem()
	b := Wrap(below, testKeys(1))
	_, err := b.Put(t.Context(), "packs/a", bytes.NewReader(plainOf(100)), 101, bucket.Condition{})
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(below.objects) != 0 {
		t.Errorf("%v, %d objects", err, len(below.objects))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Put(ctx, "packs/a", bytes.NewReader(plainOf(100)), 100, bucket.Condition{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled put: %v", err)
	}
}

// A lost answer to a conditional put is made good by asking again, and a pack that another host has put is accepted. Both
// rest on this: the same bytes under the same key are sealed the same.
func TestPuttingTheSameAgainIsNoConflict(t *testing.T) {
	below := newMem()
	a, b := Wrap(below, testKeys(1)), Wrap(below, testKeys(1))
	plain := plainOf(segmentBytes + 5)
	put := func(b *Bucket, data []byte, c bucket.Condition) (bucket.Version, error) {
		return b.Put(t.Context(), "vms/x", bytes.NewReader(data), int64(len(data)), c)
	}
	v1, err := put(a, plain, bucket.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(b, plain, bucket.Condition{Absent: true}); err != nil {
		t.Errorf("another host puts the same: %v", err)
	}
	next := plainOf(9)
	if _, err := put(a, next, bucket.Condition{Match: v1}); err != nil {
		t.Fatal(err)
	}
	if _, err := put(a, next, bucket.Condition{Match: v1}); err != nil {
		t.Errorf("the same move asked for again: %v", err)
	}
	if _, err := put(b, plain, bucket.Condition{Match: v1}); !errors.Is(err, bucket.ErrCondition) {
		t.Errorf("a move from a state that is gone: %v", err)
	}
	if _, err := put(b, plain, bucket.Condition{Absent: true}); !errors.Is(err, bucket.ErrCondition) {
		t.Errorf("other bytes where some are: %v", err)
	}
}

func TestTwoContentsNeverShareAnObjectKey(t *testing.T) {
	salts := map[[saltBytes]byte]string{}
	k := testKeys(1)
	for name, o := range map[string]struct {
		stored string
		plain  []byte
	}{
		"empty": {"vms/=a", nil}, "zero": {"vms/=a", []byte{0}}, "zeros": {"vms/=a", []byte{0, 0}}, "other key": {"vms/=b", nil},
		"key and bytes cut elsewhere": {"vms/=", []byte("a")}, "flipped": {"vms/=a", []byte{1}},
	} {
		h, err := k.saltOf(t.Context(), o.stored, bytes.NewReader(o.plain), int64(len(o.plain)))
		if err != nil {
			t.Fatal(err)
		}
		if twin, same := salts[h.salt]; same {
			t.Errorf("%q and %q have one salt", name, twin)
		}
		salts[h.salt] = name
	}
}

func TestListYieldsKeysThatEveryMethodTakes(t *testing.T) {
	below := newMem()
	b := Wrap(below, testKeys(1))
	want := map[string][]byte{}
	for i, key := range []string{"vms/agent-1", "vms/agent-2", "packs/aa.pack", "holds/0a/1", "gc/condemned.json", "top"} {
		want[b.ListedKey(key)] = plainOf(i * 1000)
		mustPut(t, b, key, plainOf(i*1000))
	}
	below.set("vms/README", []byte("not ours"))
	seen := 0
	var before string
	for info, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Key <= before {
			t.Errorf("%s comes after %s", info.Key, before)
		}
		before = info.Key
		plain, ours := want[info.Key]
		if !ours || info.Bytes != int64(len(plain)) {
			t.Errorf("%s of %d bytes is listed", info.Key, info.Bytes)
		}
		mustGet(t, b, info.Key, plain)
		if st, err := b.Stat(t.Context(), info.Key); err != nil || st.Key != info.Key || st.Bytes != info.Bytes {
			t.Errorf("Stat of a listed key: %+v, %v", st, err)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d of %d are listed", seen, len(want))
	}
	for info, err := range b.List(t.Context(), "vms/") {
		if err != nil || !strings.HasPrefix(info.Key, "vms/=") {
			t.Errorf("%s in vms/: %v", info.Key, err)
		}
	}
	for _, err := range b.List(t.Context(), "vms/agent") {
		if !errors.Is(err, bucket.ErrUnsupported) {
			t.Errorf("a list by the beginning of a sealed name: %v", err)
		}
	}
	if err := b.Delete(t.Context(), b.ListedKey("vms/agent-1")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context(), "vms/agent-1", 1); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("deleted by its listed key: %v", err)
	}
}
