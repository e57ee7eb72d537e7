package seal

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"flash/cas/bucket"
)

// MarkerKey is where a remote's marker lies.
const MarkerKey = "flash.json"

const (
	markerName     = "remote"
	markerFormat   = 1
	markerCipher   = "aes-256-gcm"
	maxMarkerBytes = 64 << 10
	idBytes        = 16
)

// Kinds of failure a caller acts on, besides bucket's.
var (
	ErrEmpty       = errors.New("there is no remote of flash yet") // and nothing else either
	ErrForeign     = errors.New("this isn't a remote of flash")    // something else's objects
	ErrFuture      = errors.New("this remote was made by a later version of flash")
	ErrMarker      = errors.New("the remote's marker is damaged")
	ErrExists      = errors.New("there is a remote of flash already")
	ErrSealed      = errors.New("this remote is encrypted")
	ErrUnsealed    = errors.New("this remote isn't encrypted")
	ErrPassphrase  = errors.New("the passphrase is wrong")
	ErrKeyFile     = errors.New("the key file is wrong")
	ErrOtherRemote = errors.New("this isn't the remote that was added under this name")
	ErrSlot        = errors.New("there is no such key slot")
	ErrLastSlot    = errors.New("this is the last key slot: without it nothing opens the remote any more")
)

// Marker says that a bucket is a remote. It holds no secret.
type Marker struct {
	Flash   string    `json:"flash"`
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Seal    *Seal     `json:"seal,omitempty"`
}

// Seal says how a remote is encrypted, and in which slots its key lies.
type Seal struct {
	Cipher string `json:"cipher"`
	Check  []byte `json:"check"`
	Slots  []Slot `json:"slots"`
}

// Sealed tells whether the remote is encrypted.
func (m *Marker) Sealed() bool { return m.Seal != nil }

// Known is what a host remembers of a remote it has added.
type Known struct {
	ID     string
	Sealed bool
}

// Check compares the marker with what this host knows. Without it, who keeps the bucket could put a marker without a seal
// there, and would be sent plain bytes.
func (m *Marker) Check(k Known) error {
	if k.ID != m.ID {
		return fmt.Errorf("its id was %s and is %s now: %w", k.ID, m.ID, ErrOtherRemote)
	}
	if k.Sealed && !m.Sealed() {
		return fmt.Errorf("it was encrypted when it was added here, and its marker says now that it isn't: %w", ErrUnsealed)
	}
	if !k.Sealed && m.Sealed() {
		return fmt.Errorf("it wasn't when it was added here: %w", ErrSealed)
	}
	return nil
}

// ReadMarker reads a bucket's marker. ErrEmpty, ErrForeign, ErrFuture, ErrMarker, and bucket's.
func ReadMarker(ctx context.Context, b bucket.Bucket) (*Marker, bucket.Version, error) {
	text, v, err := b.Get(ctx, MarkerKey, maxMarkerBytes)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		return nil, "", withoutMarker(ctx, b)
	case errors.Is(err, bucket.ErrTooLarge):
		return nil, "", fmt.Errorf("%s: its %s is larger than a marker may be: %w", b.Location(), MarkerKey, ErrForeign)
	case err != nil:
		return nil, "", fmt.Errorf("read the marker of %s: %w", b.Location(), err)
	}
	m, err := DecodeMarker(text)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %s: %w", b.Location(), MarkerKey, err)
	}
	return m, v, nil
}

// withoutMarker says what a bucket without a marker is.
func withoutMarker(ctx context.Context, b bucket.Bucket) error {
	for info, err := range b.List(ctx, "") {
		switch {
		case err != nil:
			return fmt.Errorf("list %s: %w", b.Location(), err)
		case info.Key == MarkerKey: // it came meanwhile
			return fmt.Errorf("read the marker of %s: it has only just been made, ask again: %w", b.Location(), bucket.ErrUnavailable)
		default:
			return fmt.Errorf("%s holds %q and more, perhaps, but no %s: %w", b.Location(), info.Key, MarkerKey, ErrForeign)
		}
	}
	return fmt.Errorf("%s is empty: %w", b.Location(), ErrEmpty)
}

// DecodeMarker reads a marker's text and refuses what it doesn't know. ErrForeign, ErrFuture, ErrMarker.
func DecodeMarker(text []byte) (*Marker, error) {
	var kind struct {
		Flash  string `json:"flash"`
		Format int    `json:"format"`
	}
	if err := json.Unmarshal(text, &kind); err != nil || kind.Flash != markerName {
		return nil, fmt.Errorf("it isn't a marker of flash: %w", ErrForeign)
	}
	if kind.Format > markerFormat {
		return nil, fmt.Errorf("its format is %d, this flash knows %d: %w", kind.Format, markerFormat, ErrFuture)
	}
	var m Marker
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMarker, err)
	}
	if dec.More() {
		return nil, fmt.Errorf("%w: something follows it", ErrMarker)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMarker, err)
	}
	return &m, nil
}

// encode is DecodeMarker's pair: it refuses to write what couldn't be read.
func (m *Marker) encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("write a marker: %w", err)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a marker: %w", err)
	}
	if len(text) >= maxMarkerBytes {
		return nil, fmt.Errorf("write a marker: it would have %d bytes, more than may be read", len(text))
	}
	return append(text, '\n'), nil
}

func (m *Marker) validate() error {
	if m.Flash != markerName || m.Format != markerFormat {
		return fmt.Errorf("kind %q, format %d", m.Flash, m.Format)
	}
	if !isHex(m.ID, idBytes) {
		return fmt.Errorf("its id isn't %d bytes in hex", idBytes)
	}
	if m.Created.IsZero() {
		return errors.New("it doesn't say when it was created")
	}
	if m.Seal == nil {
		return nil
	}
	if m.Seal.Cipher != markerCipher {
		return fmt.Errorf("its cipher is %q, this flash knows %q", m.Seal.Cipher, markerCipher)
	}
	if len(m.Seal.Check) != checkBytes {
		return fmt.Errorf("its check value has %d bytes, not %d", len(m.Seal.Check), checkBytes)
	}
	if n := len(m.Seal.Slots); n < 1 || n > maxSlots {
		return fmt.Errorf("it has %d key slots, not 1 to %d", n, maxSlots)
	}
	ids := map[string]bool{}
	for _, s := range m.Seal.Slots {
		if err := s.validate(); err != nil {
			return fmt.Errorf("key slot %q: %w", s.ID, err)
		}
		if ids[s.ID] {
			return fmt.Errorf("two key slots have the id %s", s.ID)
		}
		ids[s.ID] = true
	}
	return nil
}

func isHex(s string, bytes int) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*bytes && strings.ToLower(s) == s
}

func isLabel(s string) bool {
	return len(s) <= maxLabelBytes && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
