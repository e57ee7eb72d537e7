package dir

import (
	"path"
	"strings"
	"testing"
)

// A key's file is below the root, no other key has it, whatever the case, and its name leads back to the key.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a/b", "UPPER/lower", ".x", "x.", "%41", "a%2Fb", "con", "x/=00ff", " ", "~/.ssh"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name, err := nameOf(key)
		if err != nil {
			return
		}
		if path.Join("/root", name) != "/root/"+name || strings.ContainsAny(name, "\\:*?\"<>| ") || strings.HasPrefix(name, ownDir) {
			t.Errorf("%q is the file %q", key, name)
		}
		var elements []string
		for n := range strings.SplitSeq(name, "/") {
			e, ok := elementOf(n)
			if !ok {
				t.Errorf("%q is the file %q, which stands for nothing", key, name)
			}
			elements = append(elements, e)
		}
		if back := strings.Join(elements, "/"); back != key {
			t.Errorf("%q is the file %q, which stands for %q", key, name, back)
		}
		if other, err := nameOf(strings.ToLower(key)); err == nil && other != name && strings.EqualFold(other, name) {
			t.Errorf("%q and its lower case are one file on some systems: %q, %q", key, name, other)
		}
	})
}
