package local_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"flash/cas"
	"flash/cas/castest"
)

func TestFullDiskRefusesPutsAndLosesNothing(t *testing.T) {
	fs := castest.NewCrashFS(1)
	c := crashConfig(fs, 1)
	c.ReserveBytes = 100_000
	s := mustOpen(t, c)
	fs.SetRoom(200_000)
	chunks := castest.Chunks(s.Hasher(), 1, 200)
	stored := 0
	for ; stored < len(chunks); stored += 5 {
		if _, err := s.Put(t.Context(), chunks[stored:stored+5], nil); err != nil {
			if !errors.Is(err, cas.ErrNoSpace) {
				t.Fatalf("%v, want ErrNoSpace", err)
			}
			break
		}
	}
	if free, _ := fs.FreeBytes(""); stored == 0 || stored == len(chunks) || free < 90_000 {
		t.Fatalf("%d chunks stored, %d bytes free", stored, free)
	}
	have(t, s, chunks[:stored])
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("Sync in spite of the reserve: %v", err)
	}
	fs.SetRoom(-1)
	if _, err := s.Put(t.Context(), chunks, nil); err != nil {
		t.Errorf("with room again: %v", err)
	}
	have(t, s, chunks)
}

func TestDiskThatFillsAmidAWriteLosesNothing(t *testing.T) {
	for room := int64(0); room < 30_000; room += 1_777 {
		fs := castest.NewCrashFS(1)
		c := crashConfig(fs, 1)
		c.ReserveBytes = -1
		s := mustOpen(t, c)
		chunks := castest.Chunks(s.Hasher(), 1, 40)
		put(t, s, chunks[:10])
		fs.SetRoom(room)
		stored := 10
		for ; stored < 40; stored++ {
			if _, err := s.Put(t.Context(), chunks[stored:stored+1], nil); errors.Is(err, cas.ErrNoSpace) {
				break
			} else if err != nil {
				t.Fatalf("room %d: %v, want ErrNoSpace", room, err)
			}
		}
		have(t, s, chunks[:stored])
		fs.SetRoom(-1)
		put(t, s, chunks)
		have(t, s, chunks)
		after := fs.AfterCrash()
		s.Close()
		have(t, mustOpen(t, crashConfig(after, 2)), chunks)
	}
}

// A full disk must not keep anyone from reading: the store opens, and says so when asked to vouch for what it found.
func TestStoreOpensOnAFullDisk(t *testing.T) {
	fs := castest.NewCrashFS(1)
	s := mustOpen(t, crashConfig(fs, 1))
	chunks := castest.Chunks(s.Hasher(), 1, 4)
	put(t, s, chunks)
	after := fs.AfterCrash()
	s.Close()
	after.SetRoom(0)
	c := crashConfig(after, 2)
	c.ReserveBytes = -1
	s = mustOpen(t, c)
	have(t, s, chunks)
	if err := s.Sync(t.Context()); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("Sync: %v, want ErrNoSpace", err)
	}
	after.SetRoom(-1)
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("Sync with room: %v", err)
	}
	have(t, s, chunks)
}

func TestErrNoSpaceKeepsTheSystemsWords(t *testing.T) {
	fs := castest.NewCrashFS(1)
	s := mustOpen(t, crashConfig(fs, 1))
	fs.FailAt(1, "write", syscall.EDQUOT)
	_, err := s.Put(t.Context(), castest.Chunks(s.Hasher(), 1, 1), nil)
	if !errors.Is(err, cas.ErrNoSpace) || !strings.Contains(err.Error(), "quota") {
		t.Errorf("%v", err)
	}
}
