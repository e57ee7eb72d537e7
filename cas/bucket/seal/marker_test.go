package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand"
	"strings"
	"testing"
	"time"

	"flash/cas/bucket"
)

// quick is the least argon2id that may be: 8 MiB, once.
func quick(seed int64) SlotOptions {
	return SlotOptions{
		Argon2id: Argon2id{Time: 1, MemoryKiB: minArgonKiB, Threads: 1},
		Random:   mathrand.New(mathrand.NewSource(seed)),
		Now:      func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) },
	}
}

func passphrase(t *testing.T, p string) Secret {
	t.Helper()
	s, err := Passphrase([]byte(p))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keyFile(t *testing.T, seed int64) Secret {
	t.Helper()
	text, err := NewKeyFile(mathrand.New(mathrand.NewSource(seed)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := KeyFile(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealedRemote makes a bucket a sealed remote, with an object in it.
func sealedRemote(t *testing.T, secret Secret) (*mem, *Keys) {
	t.Helper()
	below := newMem()
	_, keys, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &secret, SlotOptions: quick(1)})
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, Wrap(below, keys), "vms/agent-1", plainOf(99))
	return below, keys
}

// opens tells whether the secret reads the object that sealedRemote put, and what it said if not.
func opens(t *testing.T, below *mem, secret Secret) error {
	t.Helper()
	m, _, err := ReadMarker(t.Context(), below)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := m.Open(secret)
	if err != nil {
		return err
	}
	mustGet(t, Wrap(below, keys), "vms/agent-1", plainOf(99))
	return nil
}

func TestARemoteOpensWithItsSecretOnly(t *testing.T) {
	below, _ := sealedRemote(t, passphrase(t, "correct horse"))
	if err := opens(t, below, passphrase(t, "correct horse")); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"correct horse\n", "Correct horse", "x"} {
		if err := opens(t, below, passphrase(t, wrong)); !errors.Is(err, ErrPassphrase) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := opens(t, below, keyFile(t, 2)); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a key file of another remote: %v", err)
	}
	file, _ := sealedRemote(t, keyFile(t, 2))
	if err := opens(t, file, keyFile(t, 2)); err != nil {
		t.Error(err)
	}
	if err := opens(t, file, keyFile(t, 3)); !errors.Is(err, ErrKeyFile) {
		t.Errorf("another key file: %v", err)
	}
	if err := opens(t, file, passphrase(t, "correct horse")); !errors.Is(err, ErrPassphrase) {
		t.Errorf("a passphrase where there is no slot for one: %v", err)
	}
}

func TestAnUnsealedRemoteHasAMarkerAndNoKeys(t *testing.T) {
	below := newMem()
	m, keys, err := CreateMarker(t.Context(), below, CreateOptions{SlotOptions: quick(1)})
	if err != nil || keys != nil || m.Sealed() {
		t.Fatalf("%+v, %v", m, err)
	}
	read, _, err := ReadMarker(t.Context(), below)
	if err != nil || read.ID != m.ID {
		t.Fatalf("%+v, %v", read, err)
	}
	if _, err := read.Open(passphrase(t, "x")); !errors.Is(err, ErrUnsealed) {
		t.Errorf("a passphrase for a remote without encryption: %v", err)
	}
}

func TestWhatIsNotOursIsRefusedAndLeftAlone(t *testing.T) {
	marker := func(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }
	for what, c := range map[string]struct {
		key  string
		text []byte
		want error
	}{
		"someone's photos":      {"photos/1.jpg", []byte("x"), ErrForeign},
		"another's flash.json":  {MarkerKey, []byte(`{"brightness": 7}`), ErrForeign},
		"no JSON":               {MarkerKey, []byte("hello"), ErrForeign},
		"a huge one":            {MarkerKey, bytes.Repeat([]byte(" "), maxMarkerBytes+1), ErrForeign},
		"a later format":        {MarkerKey, marker(`{"flash":"remote","format":2,"shape":"new"}`), ErrFuture},
		"no format":             {MarkerKey, marker(`{"flash":"remote"}`), ErrMarker},
		"an unknown field":      {MarkerKey, marker(`{"flash":"remote","format":1,"id":%q,"created":"2026-01-01T00:00:00Z","more":1}`, strings.Repeat("ab", 16)), ErrMarker},
		"no id":                 {MarkerKey, marker(`{"flash":"remote","format":1,"created":"2026-01-01T00:00:00Z"}`), ErrMarker},
		"something after it":    {MarkerKey, marker(`{"flash":"remote","format":1,"id":%q,"created":"2026-01-01T00:00:00Z"}{}`, strings.Repeat("ab", 16)), ErrForeign},
		"a remote of ours":      {MarkerKey, marker(`{"flash":"remote","format":1,"id":%q,"created":"2026-01-01T00:00:00Z"}`, strings.Repeat("ab", 16)), ErrExists},
		"a seal without a slot": {MarkerKey, marker(`{"flash":"remote","format":1,"id":%q,"created":"2026-01-01T00:00:00Z","seal":{"cipher":"aes-256-gcm","check":"AAAAAAAAAAAAAAAAAAAAAA==","slots":[]}}`, strings.Repeat("ab", 16)), ErrMarker},
	} {
		below := newMem()
		below.set(c.key, c.text)
		secret := passphrase(t, "x")
		_, _, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &secret, SlotOptions: quick(1)})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: CreateMarker says %v, want %v", what, err, c.want)
		}
		if len(below.objects) != 1 || !bytes.Equal(below.object(c.key), c.text) {
			t.Errorf("%s: it was touched", what)
		}
		if c.want == ErrExists {
			continue
		}
		if _, _, err := ReadMarker(t.Context(), below); !errors.Is(err, c.want) {
			t.Errorf("%s: ReadMarker says %v, want %v", what, err, c.want)
		}
	}
	if _, _, err := ReadMarker(t.Context(), newMem()); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty bucket: %v", err)
	}
}

func TestOfTwoHostsThatCreateAtOnceOneWins(t *testing.T) {
	below := newMem()
	secret := passphrase(t, "x")
	raced := false
	below.hook = func(request string) {
		if request == "PUT "+MarkerKey && !raced {
			raced = true
			if _, _, err := CreateMarker(t.Context(), below, CreateOptions{SlotOptions: quick(2)}); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &secret, SlotOptions: quick(1)}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
}

func TestRotationKeepsDataReadableAndTheOldPassphraseOut(t *testing.T) {
	old, next := passphrase(t, "old"), passphrase(t, "next")
	below, keys := sealedRemote(t, old)
	m, err := Rotate(t.Context(), below, old, next, quick(5))
	if err != nil || len(m.Seal.Slots) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := opens(t, below, next); err != nil {
		t.Errorf("the new passphrase: %v", err)
	}
	if err := opens(t, below, old); !errors.Is(err, ErrPassphrase) {
		t.Errorf("the old passphrase: %v", err)
	}
	mustGet(t, Wrap(below, keys), "vms/agent-1", plainOf(99)) // a host that runs goes on
	if _, err := Rotate(t.Context(), below, old, next, quick(6)); !errors.Is(err, ErrPassphrase) {
		t.Errorf("rotating with the old passphrase: %v", err)
	}
}

func TestSlotsAreAddedAndRemovedAndOneAlwaysStays(t *testing.T) {
	one, two := passphrase(t, "one"), keyFile(t, 9)
	below, _ := sealedRemote(t, one)
	first := slotIDs(t, below)[0]
	if _, err := RemoveSlot(t.Context(), below, one, first); !errors.Is(err, ErrLastSlot) {
		t.Errorf("the last slot: %v", err)
	}
	m, err := AddSlot(t.Context(), below, one, two, quick(2))
	if err != nil || len(m.Seal.Slots) != 2 {
		t.Fatal(err)
	}
	for _, s := range []Secret{one, two} {
		if err := opens(t, below, s); err != nil {
			t.Error(err)
		}
	}
	if _, err := RemoveSlot(t.Context(), below, one, first); err == nil {
		t.Error("the slot that was used to open is removed: what proves that another secret is at hand?")
	}
	if _, err := RemoveSlot(t.Context(), below, two, "00000000"); !errors.Is(err, ErrSlot) {
		t.Errorf("a slot that isn't there: %v", err)
	}
	if _, err := RemoveSlot(t.Context(), below, two, first); err != nil {
		t.Fatal(err)
	}
	if err := opens(t, below, one); !errors.Is(err, ErrPassphrase) {
		t.Errorf("the removed passphrase: %v", err)
	}
	for i := len(slotIDs(t, below)); i < maxSlots; i++ {
		if _, err := AddSlot(t.Context(), below, two, two, quick(int64(100+i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := AddSlot(t.Context(), below, two, two, quick(999)); err == nil || len(slotIDs(t, below)) != maxSlots {
		t.Errorf("a slot more than a marker may have: %v", err)
	}
}

func slotIDs(t *testing.T, below *mem) (ids []string) {
	t.Helper()
	m, _, err := ReadMarker(t.Context(), below)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Seal.Slots {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestTwoHostsThatChangeSlotsAtOnceLoseNeithersChange(t *testing.T) {
	one := passphrase(t, "one")
	below, _ := sealedRemote(t, one)
	raced := false
	below.hook = func(request string) {
		if request == "PUT "+MarkerKey && !raced {
			raced = true
			if _, err := AddSlot(t.Context(), below, one, keyFile(t, 2), quick(2)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := AddSlot(t.Context(), below, one, keyFile(t, 3), quick(3)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Secret{one, keyFile(t, 2), keyFile(t, 3)} {
		if err := opens(t, below, s); err != nil {
			t.Error(err)
		}
	}
}

func TestTheExportedKeyOpensWithEverySlotGoneAndWithoutTheMarker(t *testing.T) {
	below, keys := sealedRemote(t, passphrase(t, "forgotten"))
	text := keys.Export("some-id")
	secret, err := KeyFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := opens(t, below, secret); err != nil {
		t.Errorf("with the marker: %v", err)
	}
	if _, err := AddSlot(t.Context(), below, secret, passphrase(t, "new"), quick(4)); err != nil {
		t.Errorf("a slot added with the exported key: %v", err)
	}
	if err := opens(t, below, passphrase(t, "new")); err != nil {
		t.Error(err)
	}

	if err := below.Delete(t.Context(), MarkerKey); err != nil {
		t.Fatal(err)
	}
	again, err := KeysFromExport(text)
	if err != nil {
		t.Fatal(err)
	}
	mustGet(t, Wrap(below, again), "vms/agent-1", plainOf(99))
	next := passphrase(t, "next")
	if _, _, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &next, SlotOptions: quick(7)}); !errors.Is(err, ErrForeign) {
		t.Errorf("a new marker over objects without their key: %v", err)
	}
	if _, _, err := CreateMarker(t.Context(), below, CreateOptions{Secret: &next, Keys: again, SlotOptions: quick(7)}); err != nil {
		t.Fatalf("the marker made again: %v", err)
	}
	if err := opens(t, below, next); err != nil {
		t.Error(err)
	}
}

// What the bucket's owner writes into a marker may lock us out. It never makes us use a key of his.
func TestAChangedMarkerOpensNothingOrTheSame(t *testing.T) {
	secret := passphrase(t, "x")
	below, keys := sealedRemote(t, secret)
	m, _, err := ReadMarker(t.Context(), below)
	if err != nil {
		t.Fatal(err)
	}
	mallory, _ := sealedRemote(t, passphrase(t, "mallory"))
	theirs, _, err := ReadMarker(t.Context(), mallory)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(m *Marker){
		"wrapped key":   func(m *Marker) { m.Seal.Slots[0].Wrapped[0] ^= 1 },
		"salt":          func(m *Marker) { m.Seal.Slots[0].Salt[31] ^= 1 },
		"check":         func(m *Marker) { m.Seal.Check[0] ^= 1 },
		"id":            func(m *Marker) { m.ID = strings.Repeat("cd", idBytes) },
		"parameters":    func(m *Marker) { m.Seal.Slots[0].Argon2id.Time++ },
		"mallory's own": func(m *Marker) { m.Seal.Slots[0].Wrapped = theirs.Seal.Slots[0].Wrapped },
	} {
		changed := cloneMarker(t, m)
		change(changed)
		if got, err := changed.Open(secret); err == nil {
			t.Errorf("%s changed: it opens, with the same key: %v", what, got.data == keys.data)
		}
	}
	known := Known{ID: m.ID, Sealed: true}
	if err := m.Check(known); err != nil {
		t.Error(err)
	}
	stripped := cloneMarker(t, m)
	stripped.Seal = nil
	if err := stripped.Check(known); !errors.Is(err, ErrUnsealed) {
		t.Errorf("a marker without its seal: %v; this host would send plain bytes", err)
	}
	if err := theirs.Check(Known{ID: strings.Repeat("0", 32), Sealed: true}); !errors.Is(err, ErrOtherRemote) {
		t.Errorf("another remote's marker: %v", err)
	}
	if err := m.Check(Known{ID: m.ID}); !errors.Is(err, ErrSealed) {
		t.Errorf("a seal where there was none: %v", err)
	}
}

func cloneMarker(t *testing.T, m *Marker) *Marker {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var c Marker
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestAMarkerCantExhaustTheHostThatOpensIt(t *testing.T) {
	below, _ := sealedRemote(t, passphrase(t, "x"))
	m, _, err := ReadMarker(t.Context(), below)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []Argon2id{
		{}, {Time: 1 << 30, MemoryKiB: minArgonKiB, Threads: 1}, {Time: 1, MemoryKiB: 1 << 31, Threads: 1}, {Time: 1, MemoryKiB: 1, Threads: 1},
		{Time: 1, MemoryKiB: minArgonKiB}, {Time: 1, MemoryKiB: minArgonKiB, Threads: 255}, {Time: maxArgonTime, MemoryKiB: maxArgonKiB, Threads: 1},
	} {
		m.Seal.Slots[0].Argon2id = &a
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMarker(text); !errors.Is(err, ErrMarker) {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	secret := passphrase(t, "hunter2hunter2")
	_, keys := sealedRemote(t, secret)
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "s", secret, "k", keys, "v", *keys)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "s", secret, "k", keys, "v", *keys)
	for _, v := range []any{secret, &secret, keys, *keys, struct{ S Secret }{secret}, []any{keys}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T %v"} {
			fmt.Fprintf(&logged, verb+"\n", v, v)
		}
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		logged.Write(j)
	}
	for _, leak := range []string{"hunter2", fmt.Sprintf("%x", "hunter2"), fmt.Sprintf("%x", keys.data[:6]), fmt.Sprint(keys.data[:6])[1:20], "104 117 110"} {
		if strings.Contains(logged.String(), leak) {
			t.Errorf("%q is in what was printed:\n%s", leak, logged.String())
		}
	}
	if !strings.Contains(logged.String(), redactedText) {
		t.Error("nothing was printed")
	}
}

func TestWipedKeysSealNothing(t *testing.T) {
	keys := testKeys(1)
	b := Wrap(newMem(), keys)
	keys.Wipe()
	if keys.data != [keyBytes]byte{} || keys.contents != [keyBytes]byte{} {
		t.Error("bytes are left")
	}
	mustPut(t, b, "vms/a", plainOf(3)) // what was wrapped before goes on, with its own
	mustGet(t, Wrap(b.below, testKeys(1)), "vms/a", plainOf(3))
	defer func() {
		if recover() == nil {
			t.Error("a bucket is sealed with zeros")
		}
	}()
	Wrap(newMem(), keys)
}

func TestAKeyFileIsReadStrictly(t *testing.T) {
	good, err := NewKeyFile(mathrand.New(mathrand.NewSource(1)))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		text string
		ok   bool
	}{
		"as made": {string(good), true}, "with the line ends of Windows": {strings.ReplaceAll(string(good), "\n", "\r\n"), true},
		"without its last newline": {strings.TrimSpace(string(good)), true},
		"twice":                    {string(good) + string(good), false}, "empty": {"", false}, "comments only": {"# x\n", false},
		"cut": {string(good[:len(good)-3]), false}, "another word": {strings.Replace(string(good), "FLASH-KEY-1", "FLASH-KEY-2", 1), false},
		"more behind it": {string(good) + "more", false}, "33 bytes": {"FLASH-KEY-1 " + strings.Repeat("A", 44), false},
	} {
		if _, err := KeyFile([]byte(c.text)); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrNotKeyFile) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Passphrase(nil); err == nil {
		t.Error("an empty passphrase is taken")
	}
}

func TestTheMarkerGoesThroughASealAsItIs(t *testing.T) {
	below, keys := sealedRemote(t, passphrase(t, "x"))
	b := Wrap(below, keys)
	text, _, err := b.Get(t.Context(), MarkerKey, maxMarkerBytes)
	if err != nil || !bytes.Equal(text, below.object(MarkerKey)) {
		t.Errorf("%v", err)
	}
	if info, err := b.Stat(t.Context(), MarkerKey); err != nil || info.Bytes != int64(len(text)) {
		t.Errorf("%+v, %v", info, err)
	}
	if _, _, err := ReadMarker(t.Context(), b); err != nil {
		t.Error(err)
	}
	_ = bucket.Bucket(b)
}
