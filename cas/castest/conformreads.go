package castest

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"flash/cas"
)

func absentChunks(t *testing.T, s cas.Store) {
	refs := mustPut(t, s, Chunks(s.Hasher(), 1, 5))
	absent := cas.Ref{Hash: s.Hasher().Sum([]byte("never put"))}
	for _, hint := range []cas.Hint{{}, refs[2].Hint, {Pack: cas.PackID{1}, Offset: 64, Bytes: 100}} {
		absent.Hint = hint
		got, err := s.Get(t.Context(), absent, []byte("x"))
		if !errors.Is(err, cas.ErrNotFound) || len(got) > 1 {
			t.Errorf("hint %+v: %q, %v", hint, got, err)
		}
	}
}

func staleHints(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 20)
	refs := mustPut(t, s, chunks)
	good := refs[4].Hint
	for name, hint := range map[string]cas.Hint{
		"none": {}, "of another chunk": refs[5].Hint, "of a pack that is gone": {Pack: cas.PackID{9}, Offset: 64, Bytes: 100},
		"amid a record": {Pack: good.Pack, Offset: good.Offset + 1, Bytes: good.Bytes},
		"too short":     {Pack: good.Pack, Offset: good.Offset, Bytes: good.Bytes - 1},
		"nothing long":  {Pack: good.Pack, Offset: good.Offset},
		"beyond":        {Pack: good.Pack, Offset: 1 << 31, Bytes: 1 << 31},
		"overflowing":   {Pack: good.Pack, Offset: 1<<32 - 1, Bytes: 1<<32 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			ref := cas.Ref{Hash: chunks[4].Hash, Hint: hint}
			mustHave(t, s, ref, chunks[4].Data)
			calls := 0
			err := s.GetMany(t.Context(), []cas.Ref{refs[1], ref}, func(i int, data []byte, err error) error {
				calls++
				if want := chunks[[]int{1, 4}[i]].Data; err != nil || !bytes.Equal(data, want) {
					t.Errorf("GetMany: ref %d: %d bytes, %v", i, len(data), err)
				}
				return nil
			})
			if err != nil || calls != 2 {
				t.Errorf("GetMany: %d calls, %v", calls, err)
			}
		})
	}
}

func getManyAnswersOnce(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 600)
	refs := mustPut(t, s, chunks)
	want := make([][]byte, len(refs))
	for i := range refs {
		want[i] = chunks[i].Data
		if i%7 == 0 {
			refs[i].Hint = cas.Hint{}
		}
		if i%50 == 1 {
			refs[i] = cas.Ref{Hash: s.Hasher().Sum([]byte{byte(i), byte(i >> 8)}), Hint: refs[i].Hint}
			want[i] = nil
		}
	}
	refs, want = append(refs, refs[5]), append(want, want[5]) // asked for twice
	slices.Reverse(refs)
	slices.Reverse(want)
	calls := make([]int, len(refs))
	var inside atomic.Int32
	err := s.GetMany(t.Context(), refs, func(i int, data []byte, err error) error {
		if inside.Add(1) != 1 {
			t.Error("each runs twice at once")
		}
		defer inside.Add(-1)
		calls[i]++
		if want[i] == nil && !errors.Is(err, cas.ErrNotFound) || want[i] != nil && err != nil || !bytes.Equal(data, want[i]) {
			t.Errorf("ref %d: %d bytes, want %d: %v", i, len(data), len(want[i]), err)
		}
		clear(data) // ours until each returns
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range calls {
		if n != 1 {
			t.Errorf("ref %d was answered %d times", i, n)
		}
	}
	if err := s.GetMany(t.Context(), nil, nil); err != nil {
		t.Errorf("no refs: %v", err)
	}
}

func getManyEndsEarly(t *testing.T, s cas.Store) {
	refs := mustPut(t, s, Chunks(s.Hasher(), 1, 300))
	enough := errors.New("enough")
	calls := 0
	err := s.GetMany(t.Context(), refs, func(int, []byte, error) error {
		if calls++; calls == 10 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 10 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func hasTells(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 4)
	mustPut(t, s, chunks[:2])
	got, err := s.Has(t.Context(), []cas.Hash{chunks[2].Hash, chunks[0].Hash, chunks[3].Hash, chunks[1].Hash})
	if err != nil || !slices.Equal(got, []bool{false, true, false, true}) {
		t.Errorf("%v, %v", got, err)
	}
}

func wrongNameIsNeverServed(t *testing.T, s cas.Store) {
	c := Chunks(s.Hasher(), 1, 1)
	c[0].Hash[5] ^= 1
	hints := make([]cas.Hint, 1)
	if _, err := s.Put(t.Context(), c, hints); err != nil {
		return // refused at once
	}
	for _, hint := range []cas.Hint{{}, hints[0]} {
		if got, err := s.Get(t.Context(), cas.Ref{Hash: c[0].Hash, Hint: hint}, nil); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%d bytes, %v; want ErrCorrupt", len(got), err)
		}
	}
}
