package cas_test

import (
	"bytes"
	"testing"

	"flash/cas"
)

// The expected values are those of the BLAKE3 paper's test vectors (input: 0, 1, 2 … 250 repeating; key below).
func TestHasherIsBLAKE3(t *testing.T) {
	input := make([]byte, 1024)
	for i := range input {
		input[i] = byte(i % 251)
	}
	const (
		plain = "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"
		keyed = "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4"
	)
	key := [32]byte([]byte("whats the Elvish word for friend"))
	if got := cas.NewHasher(nil).Sum(input).String(); got != plain {
		t.Errorf("plain: got %s, want %s", got, plain)
	}
	if got := cas.NewHasher(&key).Sum(input).String(); got != keyed {
		t.Errorf("keyed: got %s, want %s", got, keyed)
	}
}

func TestReusedHasherForgetsEarlierInput(t *testing.T) {
	h := cas.NewHasher(nil)
	page := bytes.Repeat([]byte{7}, cas.SlotBytes)
	first := h.Sum(page)
	h.Sum([]byte("something else"))
	if again := h.Sum(page); again != first {
		t.Fatalf("the same page was named %s, then %s", first, again)
	}
	if n := testing.AllocsPerRun(10, func() { h.Sum(page) }); n > 0 {
		t.Errorf("%v allocations a page, want none", n)
	}
}

func TestKeyIDTellsKeysApart(t *testing.T) {
	a, b := [32]byte{1}, [32]byte{2}
	if cas.KeyID(nil) != 0 || cas.KeyID(&a) == 0 || cas.KeyID(&a) == cas.KeyID(&b) {
		t.Errorf("key ids: none %d, a %d, b %d", cas.KeyID(nil), cas.KeyID(&a), cas.KeyID(&b))
	}
}

func TestParseHashRefusesWhatStringNeverMakes(t *testing.T) {
	h := cas.NewHasher(nil).Sum([]byte("x"))
	back, err := cas.ParseHash(h.String())
	if err != nil || back != h {
		t.Fatalf("ParseHash(String) = %s, %v", back, err)
	}
	for _, s := range []string{"", "00", h.String() + "00", "zz" + h.String()[2:]} {
		if _, err := cas.ParseHash(s); err == nil {
			t.Errorf("ParseHash(%q) succeeded", s)
		}
	}
}

func TestCheckRefusesChunksOutsideTheLimits(t *testing.T) {
	good := cas.Chunk{Hash: cas.Hash{1}, Kind: cas.KindData, Data: make([]byte, cas.SlotBytes)}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*cas.Chunk){
		"zero hash":     func(c *cas.Chunk) { c.Hash = cas.Hash{} },
		"no kind":       func(c *cas.Chunk) { c.Kind = 0 },
		"unknown kind":  func(c *cas.Chunk) { c.Kind = 9 },
		"empty":         func(c *cas.Chunk) { c.Data = nil },
		"too long":      func(c *cas.Chunk) { c.Data = make([]byte, cas.MaxChunkBytes+1) },
		"named beyond":  func(c *cas.Chunk) { c.Named = len(c.Data) + 1 },
		"negative name": func(c *cas.Chunk) { c.Named = -1 },
	} {
		c := good
		spoil(&c)
		if c.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkHashPage(b *testing.B) {
	h := cas.NewHasher(nil)
	page := bytes.Repeat([]byte("page"), cas.SlotBytes/4)
	b.SetBytes(cas.SlotBytes)
	for b.Loop() {
		h.Sum(page)
	}
}
