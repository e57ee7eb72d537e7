package castest_test

import (
	"errors"
	"testing"

	"flash/cas"
	"flash/cas/castest"
)

func TestMemoryConforms(t *testing.T) {
	castest.Run(t, func(t *testing.T) cas.Store { return castest.NewMemory() })
}

func TestKeyedMemoryConforms(t *testing.T) {
	castest.Run(t, func(t *testing.T) cas.Store { return castest.NewKeyedMemory(&[32]byte{7}) })
}

func TestMemoryFailsTheOperationItIsTold(t *testing.T) {
	m := castest.NewMemory()
	boom := errors.New("boom")
	m.FailAt(2, boom)
	chunks := castest.Chunks(m.Hasher(), 1, 3)
	if _, err := m.Put(t.Context(), chunks, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Sync(t.Context()); !errors.Is(err, boom) {
		t.Errorf("second operation: %v", err)
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Errorf("third operation: %v", err)
	}
}

func TestMemoryCrashKeepsWhatWasSynced(t *testing.T) {
	m := castest.NewMemory()
	chunks := castest.Chunks(m.Hasher(), 1, 4)
	m.Put(t.Context(), chunks[:2], nil)
	m.Sync(t.Context())
	m.Put(t.Context(), chunks[2:], nil)
	after := m.Crash()
	if after.Len() != 2 || m.Len() != 4 {
		t.Fatalf("%d chunks after the crash, %d before", after.Len(), m.Len())
	}
	m.Corrupt(chunks[0].Hash)
	if _, err := m.Get(t.Context(), cas.Ref{Hash: chunks[0].Hash}, nil); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("corrupt chunk: %v", err)
	}
	if _, err := after.Get(t.Context(), cas.Ref{Hash: chunks[0].Hash}, nil); err != nil {
		t.Errorf("the damage reached the other store: %v", err)
	}
}
