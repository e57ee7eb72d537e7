package offsite

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// HostID tells hosts apart in claims: random, kept in the home. A home that is copied takes it along; that two go on under
// one id shows at the second's next push, which is ErrRolledBack.
type HostID [16]byte

func (h HostID) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the id as String does.
func (h HostID) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *HostID) UnmarshalText(text []byte) error {
	id, err := ParseHostID(string(text))
	if err == nil {
		*h = id
	}
	return err
}

// ParseHostID reads 32 hex digits, not all zero.
func ParseHostID(s string) (HostID, error) {
	var h HostID
	if len(s) != 2*len(h) {
		return h, fmt.Errorf("host id %.40q: want %d hex digits, have %d", s, 2*len(h), len(s))
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fmt.Errorf("host id %q: %w", s, err)
	}
	if h == (HostID{}) {
		return h, fmt.Errorf("host id %s: zero is nobody's", s)
	}
	return h, nil
}

// HostIDFile is its name in the home: 32 hex digits and a line feed.
const HostIDFile = "host-id"

// LoadHostID gives the id of the host whose home this is, and makes one the first time.
func LoadHostID(home string) (HostID, error) {
	path := filepath.Join(home, HostIDFile)
	h, err := readHostID(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	if _, err := rand.Read(h[:]); err != nil {
		return h, fmt.Errorf("make a host id: %w", err)
	}
	// Linked, not renamed: of two that make one at the same time both get the first.
	tmp, err := os.CreateTemp(home, HostIDFile+".*.tmp")
	if err != nil {
		return h, fmt.Errorf("make a host id: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(h.String() + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return h, fmt.Errorf("make a host id: %w", err)
	}
	return readHostID(path)
}

func readHostID(path string) (HostID, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return HostID{}, fmt.Errorf("read the host id: %w", err)
	}
	h, err := ParseHostID(strings.TrimSpace(string(p)))
	if err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}
