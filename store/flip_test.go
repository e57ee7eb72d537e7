package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"flash/cas/castest"
)

var flips = flag.Int("flips", 12, "bytes flipped in the database")

// tell is everything the database says.
func tell(s *Store) ([]byte, error) {
	ctx := context.Background()
	var all []any
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	bundles, err := s.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, vms, bundles)
	for _, v := range vms {
		h, err := s.History(ctx, v.ID)
		if err != nil {
			return nil, err
		}
		l, err := s.Ledger(ctx, v.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, h, l)
	}
	return json.Marshal(all)
}

// copyTree copies a folder of files.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A flipped byte anywhere in the database is refused, or it changes nothing that is told.
func TestFlippedByteInTheDatabaseNeverChangesWhatItTells(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	base := t.TempDir()
	chunks := castest.NewMemory()
	crashed, closed := filepath.Join(base, "crashed"), filepath.Join(base, "closed")
	work := filepath.Join(base, "work")
	s := reopen(t, work, chunks)
	putBundle(t, s, "b", page(1))
	for i := range 3 {
		id := fmt.Sprintf("vm-%d", i)
		newVM(t, s, id)
		for k := range 8 {
			checkpoint(t, s, id, memBytes, delta{uint64(k): page(uint64(100*i + k))})
		}
	}
	want, err := tell(s)
	if err != nil {
		t.Fatal(err)
	}
	copyTree(t, work, crashed) // all in the log
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyTree(t, work, closed) // all in a table
	refused, harmless := 0, 0
	for i := range *flips {
		dir := filepath.Join(base, fmt.Sprint("flip-", i))
		copyTree(t, []string{crashed, closed}[i%2], dir)
		name, at := flip(t, rng, dir)
		err := compareTold(dir, chunks, want)
		switch {
		case errors.Is(err, errOtherTold):
			t.Errorf("byte %d of %s: %v; again: go test ./store -run FlippedByteInTheDatabase -seed %d", at, name, err, seed)
		case err != nil:
			refused++
		default:
			harmless++
		}
		os.RemoveAll(dir)
	}
	if refused < *flips/8 {
		t.Errorf("%d refused and %d harmless: what was flipped?", refused, harmless)
	}
	t.Logf("%d refused, %d harmless, seed %d", refused, harmless, seed)
}

// flip changes one byte of one file, among those that aren't holes.
func flip(t *testing.T, rng *rand.Rand, dir string) (string, int) {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != witnessName {
			names = append(names, e.Name())
		}
	}
	for {
		name := names[rng.IntN(len(names))]
		p, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(p, "\x00"))
		if used == 0 {
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
			continue
		}
		at := rng.IntN(used)
		p[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o600); err != nil {
			t.Fatal(err)
		}
		return name, at
	}
}

var errOtherTold = errors.New("it tells something else, without an error")

func compareTold(dir string, chunks *castest.Memory, want []byte) (err error) {
	s, err := Open(context.Background(), Config{Dir: dir, Chunks: chunks})
	if err != nil {
		return err
	}
	defer s.Close()
	got, err := tell(s)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: %d bytes, want %d", errOtherTold, len(got), len(want))
	}
	return nil
}
