package offsite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"flash/cas"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var (
	hostA = HostID{0xa, 1}
	hostB = HostID{0xb, 2}
	when  = time.Unix(1_700_000_000, 5).UTC()
)

func sampleRef() *refRecord {
	return &refRecord{VM: "agent-1", Owner: hostA, HostName: "alpha", Epoch: 3, Seq: 12, Since: when, Pushed: when.Add(time.Hour),
		History: bytes.Repeat([]byte("a history that repeats itself; "), 20)}
}

func mustEncode(t testing.TB, r *refRecord) []byte {
	t.Helper()
	p, err := r.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s isn't what is written now:\n%q\n%q", path, want, got)
	}
}

func TestTheFormatsStayWhatTheyWere(t *testing.T) {
	raw := sampleRef()
	raw.History = []byte("short")
	golden(t, "ref-raw.golden", mustEncode(t, raw))
	removed := sampleRef()
	removed.Removed, removed.History = true, nil
	golden(t, "ref-removed.golden", mustEncode(t, removed))
	golden(t, "lease.golden", encodeObject(lease{object{kindLease, objectFormat}, hostA, "alpha", "agent-1", when, 2, []packID{{1}, {2}}}))
	golden(t, "hold.golden", encodeObject(hold{object{kindHold, objectFormat}, hostA, "alpha", "agent-1", when, []cas.Hash{{1}}, []packID{{2}}}))
	golden(t, "condemned.golden", encodeObject(condemned{object{kindCondemned, objectFormat}, &collector{hostA, "alpha", "0011", when, 1},
		[]condemnedPack{{packID{1}, cas.Hash{2}, 3, when, stateCondemned}}, []string{"agent-2"}}))
	// What zstd makes of a history may change; that an old one is read may not.
	path := filepath.Join("testdata", "ref-zstd.golden")
	if *rewrite {
		if err := os.WriteFile(path, mustEncode(t, sampleRef()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRef(p)
	if err != nil || !reflect.DeepEqual(got, sampleRef()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatIsNotARefIsRefused(t *testing.T) {
	good := mustEncode(t, sampleRef())
	reseal := func(p []byte) []byte {
		sum := blake3.Sum256(p[:len(p)-refSumBytes])
		copy(p[len(p)-refSumBytes:], sum[:])
		return p
	}
	for name, change := range map[string]func(p []byte) []byte{
		"empty":              func(p []byte) []byte { return nil },
		"cut":                func(p []byte) []byte { return p[:len(p)-1] },
		"longer":             func(p []byte) []byte { return append(p, 0) },
		"a flipped bit":      func(p []byte) []byte { p[100] ^= 1; return p },
		"the future":         func(p []byte) []byte { p[8] = 2; return reseal(p) },
		"another state":      func(p []byte) []byte { p[10] = 3; return reseal(p) },
		"another codec":      func(p []byte) []byte { p[11] = 7; return reseal(p) },
		"a bomb":             func(p []byte) []byte { binary.LittleEndian.PutUint32(p[12:], 1<<30); return reseal(p) },
		"another length":     func(p []byte) []byte { p[12]++; return reseal(p) },
		"longer names":       func(p []byte) []byte { p[68]++; return reseal(p) },
		"nobody's":           func(p []byte) []byte { clear(p[20:36]); return reseal(p) },
		"no epoch":           func(p []byte) []byte { clear(p[36:44]); return reseal(p) },
		"something reserved": func(p []byte) []byte { p[75] = 1; return reseal(p) },
	} {
		if _, err := decodeRef(change(bytes.Clone(good))); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRef(f *testing.F) {
	f.Add(mustEncode(f, sampleRef()))
	removed := sampleRef()
	removed.Removed, removed.History = true, nil
	f.Add(mustEncode(f, removed))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > refSumBytes { // let the fuzzer through
			sum := blake3.Sum256(p[:len(p)-refSumBytes])
			copy(p[len(p)-refSumBytes:], sum[:])
		}
		r, err := decodeRef(p)
		if err != nil {
			return
		}
		again, err := decodeRef(mustEncode(t, r))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func FuzzObjects(f *testing.F) {
	for _, name := range []string{"lease", "hold", "condemned"} {
		p, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if l, err := decodeLease(p); err == nil {
			again, err := decodeLease(encodeObject(l))
			if err != nil || !reflect.DeepEqual(l, again) {
				t.Fatalf("%+v became %+v, %v", l, again, err)
			}
		}
		if h, err := decodeHold(p); err == nil {
			again, err := decodeHold(encodeObject(h))
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		if c, err := decodeCondemned(p); err == nil {
			again, err := decodeCondemned(encodeObject(c))
			if err != nil || !reflect.DeepEqual(c, again) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
	})
}

func TestObjectsOfAnotherKindOrVersionAreRefused(t *testing.T) {
	for _, p := range []string{
		``, `null`, `[]`, `{}`, `{"flash":"hold","format":1}`, `{"flash":"lease","format":2}`, `{"flash":"lease","format":1}`,
		`{"flash":"lease","format":1,"host":"0a010000000000000000000000000000","news":1}`,
		`{"flash":"lease","format":1,"host":"0a010000000000000000000000000000"} {}`,
		`{"flash":"lease","format":1,"host":"00000000000000000000000000000000"}`,
	} {
		if _, err := decodeLease([]byte(p)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestEveryNameHasItsOwnSafeKey(t *testing.T) {
	names := []string{"agent-1", "Agent-1", "a.b", "a..b", ".a", "a.", "..", "a/b", "a b", "=00", "~41", "ä", strings.Repeat("x", 128),
		strings.Repeat("é", 64), strings.Repeat("é", 63) + "ee", strings.Repeat("/", 128), "a\nb"}
	seen := map[string]string{}
	for _, n := range names {
		k := refKey(n)
		if had, ok := seen[strings.ToLower(k)]; ok {
			t.Errorf("%q and %q share the key %s", had, n, k)
		}
		seen[strings.ToLower(k)] = n
		last := k[len(refPrefix):]
		if strings.ContainsAny(last, "/=\\") || strings.Contains(last, "..") || strings.HasPrefix(last, ".") || len(last) > maxEscaped || strings.IndexFunc(last, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
			t.Errorf("%q has the key %q", n, k)
		}
	}
	if refKey("agent-1") != "vms/agent-1" {
		t.Error(refKey("agent-1"))
	}
}

func TestAHostKeepsItsId(t *testing.T) {
	home := t.TempDir()
	first, err := LoadHostID(home)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadHostID(home)
	if err != nil || first != again {
		t.Errorf("%s became %s, %v", first, again, err)
	}
	if other, err := LoadHostID(t.TempDir()); err != nil || other == first {
		t.Errorf("two homes have the id %s, %v", other, err)
	}
	left, err := os.ReadDir(home)
	if err != nil || len(left) != 1 {
		t.Errorf("the home holds %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(home, HostIDFile), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := LoadHostID(home); err == nil {
		t.Errorf("garbage was read as %s", id)
	}
}
