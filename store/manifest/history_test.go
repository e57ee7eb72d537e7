package manifest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"flash/cas"
)

func history() *History {
	code := -1
	at := time.Unix(1700000000, 5).UTC()
	h := &History{
		VM: "agent-1", Created: at, Bundle: hashOf(9), Head: 4, Next: 6, Spec: []byte(`{"memory_mib":512}`), Retention: []byte(`{"keep_last":9}`),
		Checkpoints: []NamedSnapshot{
			{Number: 0, Parent: NoCheckpoint, Snapshot: hashOf(1), Created: at, Label: "fork of main@7", FromVM: "main", FromNumber: 7},
			{Number: 1, Parent: 0, Snapshot: hashOf(2), Created: at.Add(time.Second), Label: "make test", ExitCode: &code, NewBytes: 1 << 40},
			{Number: 4, Parent: 1, Snapshot: hashOf(3), Created: at.Add(time.Minute), Pinned: true},
		},
	}
	for i, kind := range []string{"created", "checkpoint", "rewind"} {
		e := LedgerEntry{Seq: uint64(8 + i), Time: at.Add(time.Duration(i)), Kind: kind, Data: []byte(`{"n":` + kind[:1] + `}`), Prev: hashOf(77)}
		if i > 0 {
			e.Prev = h.Ledger[i-1].Hash
		}
		e.Hash = e.Sum()
		h.Ledger = append(h.Ledger, e)
	}
	return h
}

func encoded(t testing.TB, h *History) []byte {
	t.Helper()
	p, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAHistoryComesBackWhole(t *testing.T) {
	bare := &History{VM: "new", Created: time.Unix(1, 0).UTC(), Head: NoCheckpoint, Next: 1}
	long := history()
	long.Checkpoints[2].Label = strings.Repeat("x", MaxLabelBytes)
	for _, h := range []*History{history(), bare, long} {
		got, err := DecodeHistory(encoded(t, h))
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Fatalf("%v\n%+v\nwant\n%+v", err, got, h)
		}
	}
	h := history()
	h.TrimLedger(1)
	if got, err := DecodeHistory(encoded(t, h)); err != nil || len(got.Ledger) != 1 || got.Ledger[0].Kind != "rewind" {
		t.Fatalf("%v, %+v", err, got)
	}
	if got := history().Roots(); !slices.Equal(got, []cas.Hash{hashOf(9), hashOf(1), hashOf(2), hashOf(3)}) {
		t.Fatalf("roots %v", got)
	}
}

func TestADamagedHistoryIsRefused(t *testing.T) {
	p := encoded(t, history())
	for cut := range len(p) {
		if _, err := DecodeHistory(p[:cut]); !errors.Is(err, ErrFormat) {
			t.Fatalf("the first %d bytes: %v", cut, err)
		}
	}
	for i := range p {
		flipped := bytes.Clone(p)
		flipped[i] ^= 1 << (i % 8)
		if _, err := DecodeHistory(flipped); !errors.Is(err, ErrFormat) {
			t.Fatalf("with a bit of byte %d flipped: %v", i, err)
		}
		// With a checksum that fits, what is still read must be said in the only way there is.
		flipped = sealCRC(flipped[:len(p)-crcBytes], 0)
		if h, err := DecodeHistory(flipped); err == nil && !bytes.Equal(encoded(t, h), flipped) {
			t.Fatalf("byte %d: two ways to say one history", i)
		}
	}
}

func TestNoHistoryThatIsNoTreeIsWritten(t *testing.T) {
	for name, spoil := range map[string]func(h *History){
		"no name":             func(h *History) { h.VM = "" },
		"a zero in the name":  func(h *History) { h.VM = "a\x00b" },
		"head beyond next":    func(h *History) { h.Head = 6 },
		"no order":            func(h *History) { h.Checkpoints[1].Number = 0 },
		"a later parent":      func(h *History) { h.Checkpoints[1].Parent = 1 },
		"a number not given":  func(h *History) { h.Next = 4 },
		"no snapshot":         func(h *History) { h.Checkpoints[0].Snapshot = [32]byte{} },
		"a long label":        func(h *History) { h.Checkpoints[0].Label = strings.Repeat("x", MaxLabelBytes+1) },
		"no time":             func(h *History) { h.Created = time.Time{} },
		"a broken ledger":     func(h *History) { h.Ledger[1].Data = []byte("{}") },
		"a gap in the ledger": func(h *History) { h.Ledger = slices.Delete(h.Ledger, 1, 2) },
		"a first with a past": func(h *History) { h.Ledger = h.Ledger[:1]; h.Ledger[0].Seq = 1; h.Ledger[0].Hash = h.Ledger[0].Sum() },
	} {
		h := history()
		spoil(h)
		if _, err := h.Append(nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeHistory(f *testing.F) {
	p := encoded(f, history())
	f.Add(p[:len(p)-crcBytes])
	p = encoded(f, &History{VM: "new", Created: time.Unix(1, 0).UTC(), Head: NoCheckpoint, Next: 1})
	f.Add(p[:len(p)-crcBytes])
	f.Fuzz(func(t *testing.T, body []byte) {
		p := sealCRC(bytes.Clone(body), 0) // the fuzzer would never guess it
		h, err := DecodeHistory(p)
		if err != nil {
			return
		}
		again, err := h.Append(nil)
		if err != nil || !bytes.Equal(again, p) {
			t.Fatalf("%v: decoded %x\nencoded %x", err, p, again)
		}
	})
}
