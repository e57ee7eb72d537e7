package castest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"flash/cas"
)

// Run checks that a store keeps the promises of cas.Store. open gives an empty one; Run closes it.
func Run(t *testing.T, open func(t *testing.T) cas.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s cas.Store)
	}{
		{"WhatIsPutIsReadable", whatIsPutIsReadable},
		{"KnownChunksAreNotStoredAgain", knownChunksAreNotStoredAgain},
		{"RepeatsInOnePutAreStoredOnce", repeatsInOnePut},
		{"AbsentChunksAreNotFound", absentChunks},
		{"StaleHintsCostNothingButTime", staleHints},
		{"GetManyAnswersEveryRefOnce", getManyAnswersOnce},
		{"GetManyEndsWithTheErrorOfEach", getManyEndsEarly},
		{"HasTellsWhatIsThere", hasTells},
		{"PutKeepsNoReferenceToData", putKeepsNoReference},
		{"ChunkUnderAWrongNameIsNeverServed", wrongNameIsNeverServed},
		{"ChunksOutsideTheLimitsAreRefused", limits},
		{"ChunksOfAllLengths", allLengths},
		{"CancelledCallsEnd", cancelledCalls},
		{"ManyUsersAtOnce", manyUsers},
		{"ClosedStoreRefuses", closedStoreRefuses},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { s.Close() })
			c.run(t, s)
		})
	}
}

// mustPut puts chunks and gives refs with hints to them.
func mustPut(t testing.TB, s cas.Store, chunks []cas.Chunk) []cas.Ref {
	t.Helper()
	hints := make([]cas.Hint, len(chunks))
	if _, err := s.Put(t.Context(), chunks, hints); err != nil {
		t.Fatal(err)
	}
	refs := make([]cas.Ref, len(chunks))
	for i := range chunks {
		refs[i] = cas.Ref{Hash: chunks[i].Hash, Hint: hints[i]}
	}
	return refs
}

// mustHave reads ref and compares.
func mustHave(t testing.TB, s cas.Store, ref cas.Ref, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), ref, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("chunk %s, hint %+v: %d bytes, want %d: %v", ref.Hash, ref.Hint, len(got), len(want), err)
	}
}

func whatIsPutIsReadable(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 100)
	refs := mustPut(t, s, chunks)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, c := range chunks {
		if refs[i].Hint.IsZero() || refs[i].Hint.Bytes == 0 {
			t.Fatalf("chunk %d got the hint %+v", i, refs[i].Hint)
		}
		mustHave(t, s, refs[i], c.Data)
		mustHave(t, s, cas.Ref{Hash: c.Hash}, c.Data)
	}
	got, err := s.Get(t.Context(), refs[3], []byte("before"))
	if err != nil || !bytes.Equal(got, append([]byte("before"), chunks[3].Data...)) {
		t.Errorf("Get doesn't append to dst: %v", err)
	}
	if _, err := s.Put(t.Context(), Chunks(s.Hasher(), 2, 3), nil); err != nil {
		t.Errorf("without room for hints: %v", err)
	}
	if st, err := s.Put(t.Context(), nil, nil); err != nil || st != (cas.PutStats{}) {
		t.Errorf("nothing put: %+v, %v", st, err)
	}
}

func knownChunksAreNotStoredAgain(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 50)
	first := make([]cas.Hint, 50)
	st, err := s.Put(t.Context(), chunks, first)
	if err != nil || st.Chunks != 50 || st.NewChunks != 50 || st.NewBytes <= 0 {
		t.Fatalf("first time: %+v, %v", st, err)
	}
	again := make([]cas.Hint, 50)
	st, err = s.Put(t.Context(), chunks, again)
	if err != nil || st != (cas.PutStats{Chunks: 50}) {
		t.Fatalf("second time: %+v, %v", st, err)
	}
	if !slices.Equal(first, again) {
		t.Errorf("other hints the second time")
	}
}

func repeatsInOnePut(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 3)
	chunks = append(chunks, chunks[1], chunks[1])
	hints := make([]cas.Hint, 5)
	st, err := s.Put(t.Context(), chunks, hints)
	if err != nil || st.NewChunks != 3 || st.Chunks != 5 {
		t.Fatalf("%+v, %v", st, err)
	}
	if hints[3] != hints[1] || hints[4] != hints[1] || hints[1].IsZero() {
		t.Errorf("hints %+v", hints)
	}
}

func putKeepsNoReference(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 20)
	want := make([][]byte, len(chunks))
	for i := range chunks {
		want[i] = bytes.Clone(chunks[i].Data)
	}
	refs := mustPut(t, s, chunks)
	for i := range chunks {
		clear(chunks[i].Data)
	}
	for i := range refs {
		mustHave(t, s, refs[i], want[i])
	}
}

func limits(t *testing.T, s cas.Store) {
	good := Chunks(s.Hasher(), 1, 2)
	for name, spoil := range map[string]func(*cas.Chunk){
		"zero hash":    func(c *cas.Chunk) { c.Hash = cas.Hash{} },
		"no kind":      func(c *cas.Chunk) { c.Kind = 0 },
		"empty":        func(c *cas.Chunk) { c.Data = nil },
		"too long":     func(c *cas.Chunk) { c.Data = make([]byte, cas.MaxChunkBytes+1) },
		"named beyond": func(c *cas.Chunk) { c.Named = len(c.Data) + 1 },
	} {
		bad := slices.Clone(good)
		spoil(&bad[1])
		if _, err := s.Put(t.Context(), bad, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := s.Put(t.Context(), good, make([]cas.Hint, 1)); err == nil {
		t.Error("two chunks and room for one hint: accepted")
	}
}

func allLengths(t *testing.T, s cas.Store) {
	h := s.Hasher()
	var chunks []cas.Chunk
	for _, n := range []int{1, 2, 7, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 65536, 1<<20 - 1, 1 << 20} {
		noise := Chunks(h, uint64(n), 8)[7].Data
		data := bytes.Repeat(noise, n/len(noise)+1)[:n]
		chunks = append(chunks, cas.Chunk{Hash: h.Sum(data), Kind: cas.KindSnapshot, Data: data})
		if n > 1 {
			same := bytes.Repeat([]byte{byte(n), 1}, n/2)
			chunks = append(chunks, cas.Chunk{Hash: h.Sum(same[:n/3+1]), Kind: cas.KindNode, Named: n/3 + 1, Data: same})
		}
	}
	refs := mustPut(t, s, chunks)
	for i := range refs {
		mustHave(t, s, refs[i], chunks[i].Data)
	}
	err := s.GetMany(t.Context(), refs, func(i int, data []byte, err error) error {
		if err != nil || !bytes.Equal(data, chunks[i].Data) {
			return fmt.Errorf("ref %d: %d bytes, want %d: %w", i, len(data), len(chunks[i].Data), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func cancelledCalls(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 10)
	refs := mustPut(t, s, chunks)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, refs[0], nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Put(ctx, Chunks(s.Hasher(), 2, 10), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	if _, err := s.Has(ctx, []cas.Hash{refs[0].Hash}); !errors.Is(err, context.Canceled) {
		t.Errorf("Has: %v", err)
	}
	if err := s.GetMany(ctx, refs, func(int, []byte, error) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("GetMany: %v", err)
	}
	mustHave(t, s, refs[1], chunks[1].Data)
}

func manyUsers(t *testing.T, s cas.Store) {
	const users, rounds, perRound = 8, 6, 40
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			h := s.Hasher()
			for r := range rounds {
				chunks := Chunks(h, uint64(r*users+u/2), perRound) // every two put the same
				hints := make([]cas.Hint, perRound)
				if _, err := s.Put(t.Context(), chunks, hints); err != nil {
					t.Error(err)
					return
				}
				if err := s.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				for i, c := range chunks {
					got, err := s.Get(t.Context(), cas.Ref{Hash: c.Hash, Hint: hints[i]}, nil)
					if err != nil || !bytes.Equal(got, c.Data) {
						t.Errorf("user %d round %d chunk %d: %d bytes, %v", u, r, i, len(got), err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func closedStoreRefuses(t *testing.T, s cas.Store) {
	chunks := Chunks(s.Hasher(), 1, 2)
	refs := mustPut(t, s, chunks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), refs[0], nil); err == nil {
		t.Error("Get after Close")
	}
	if _, err := s.Put(t.Context(), chunks, nil); err == nil {
		t.Error("Put after Close")
	}
	if err := s.Sync(t.Context()); err == nil {
		t.Error("Sync after Close")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}
