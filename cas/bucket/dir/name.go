package dir

import (
	"fmt"
	"strings"

	"flash/cas/bucket"
)

// Names: an element of a key is a file's name, byte for byte where it has only a-z 0-9 - _ = . and neither begins nor ends
// with a dot. Every other byte is %XX, its value in capital hex digits: so keys that differ only in case are different files
// on every file system, no name is one that Windows keeps for itself, and names that begin with a dot are never objects.

const maxNameBytes = 255 // what file systems take

// nameOf is the path below the root of a key's file.
func nameOf(key string) (string, error) {
	if err := bucket.CheckKey(key); err != nil {
		return "", err
	}
	var name strings.Builder
	for i, element := range strings.Split(key, "/") {
		if i > 0 {
			name.WriteByte('/')
		}
		e := escape(element)
		if len(e) > maxNameBytes {
			return "", fmt.Errorf("%q: %w here: as a file's name, the element %q has %d bytes, more than %d", key, bucket.ErrKey, element, len(e), maxNameBytes)
		}
		name.WriteString(e)
	}
	return name.String(), nil
}

func escape(element string) string {
	plain := true
	for i := range len(element) {
		plain = plain && isPlain(element, i)
	}
	if plain {
		return element
	}
	var e strings.Builder
	for i := range len(element) {
		if isPlain(element, i) {
			e.WriteByte(element[i])
		} else {
			fmt.Fprintf(&e, "%%%02X", element[i])
		}
	}
	return e.String()
}

func isPlain(element string, i int) bool {
	switch c := element[i]; {
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '=':
		return true
	case c == '.':
		return i > 0 && i < len(element)-1
	default:
		return false
	}
}

// elementOf is the element a file's name stands for; ok is false for files that aren't ours.
func elementOf(name string) (element string, ok bool) {
	var e strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			e.WriteByte(name[i])
			continue
		}
		var c byte
		if i+2 >= len(name) {
			return "", false
		}
		if _, err := fmt.Sscanf(name[i+1:i+3], "%02X", &c); err != nil {
			return "", false
		}
		e.WriteByte(c)
		i += 2
	}
	element = e.String()
	return element, element != "" && !strings.Contains(element, "/") && escape(element) == name && bucket.CheckKey(element) == nil
}
