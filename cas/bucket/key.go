package bucket

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKeyBytes is the longest key: S3 takes 1,024 bytes, of which a bucket's own prefix needs some.
const MaxKeyBytes = 800

// ErrKey is a key, prefix or condition that no implementation takes: the caller's fault, not the storage's.
var ErrKey = errors.New("not a key")

// CheckKey refuses what isn't a key. Every implementation calls it before it does anything, so that no key escapes from the
// bucket's location, whatever stands behind it.
//
// "." is no element and ".." is nowhere in a key, not even within an element, since a client, a proxy or a file
// system on the way might resolve them.
func CheckKey(key string) error {
	if key == "" || strings.HasSuffix(key, "/") {
		return fmt.Errorf("%q: %w: it has no last element", key, ErrKey)
	}
	return CheckPrefix(key)
}

// CheckPrefix refuses what no key begins with. "" begins all, and the last element needn't be whole.
func CheckPrefix(prefix string) error {
	switch {
	case len(prefix) > MaxKeyBytes:
		return fmt.Errorf("%q…: %w: it has %d bytes, more than %d", prefix[:40], ErrKey, len(prefix), MaxKeyBytes)
	case strings.HasPrefix(prefix, "/"):
		return fmt.Errorf("%q: %w: it begins with /", prefix, ErrKey)
	case strings.Contains(prefix, ".."):
		return fmt.Errorf("%q: %w: it has ..", prefix, ErrKey)
	case strings.Contains(prefix, "//"):
		return fmt.Errorf("%q: %w: it has //", prefix, ErrKey)
	}
	for i := range len(prefix) {
		if c := prefix[i]; c < ' ' || c > '~' {
			return fmt.Errorf("%q: %w: byte %d isn't printable ASCII", prefix, ErrKey, i)
		}
	}
	for element := range strings.SplitSeq(prefix, "/") {
		if element == "." {
			return fmt.Errorf("%q: %w: one of its elements is a dot", prefix, ErrKey)
		}
	}
	return nil
}

// CheckCondition refuses a condition that asks for two states at once.
func CheckCondition(c Condition) error {
	if c.Absent && c.Match != "" {
		return fmt.Errorf("a condition can't ask for no object and for version %s: %w", c.Match, ErrKey)
	}
	return nil
}
