package seal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/crypto/argon2"
)

const (
	maxSlots      = 16
	maxLabelBytes = 64
	slotIDBytes   = 4
	slotSaltBytes = 32
	wrappedBytes  = keyBytes + tagBytes
)

// Slot is the data key, wrapped by one secret.
type Slot struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Label    string    `json:"label,omitempty"`
	Created  time.Time `json:"created"`
	Argon2id *Argon2id `json:"argon2id,omitempty"`
	Salt     []byte    `json:"salt"`
	Wrapped  []byte    `json:"wrapped"`
}

// Argon2id says how dear it is to try a passphrase. The zero value is DefaultArgon2id.
type Argon2id struct {
	Time      uint32 `json:"time"`
	MemoryKiB uint32 `json:"memory_kib"`
	Threads   uint8  `json:"threads"`
}

// DefaultArgon2id is RFC 9106's second recommendation, which suits hosts whose memory belongs to guests: 64 MiB, some 100
// ms.
var DefaultArgon2id = Argon2id{Time: 3, MemoryKiB: 64 << 10, Threads: 4}

// Bounds on reading: a marker comes from the bucket's owner, and mustn't take the host's memory or its day.
const (
	maxArgonTime      = 32
	minArgonKiB       = 8 << 10
	maxArgonKiB       = 1 << 20 // 1 GiB
	maxArgonThreads   = 64
	maxArgonPassesKiB = 8 << 20 // 8 GiB written altogether: some 8 s
)

func (a Argon2id) validate() error {
	if a.Time < 1 || a.Time > maxArgonTime || a.MemoryKiB < minArgonKiB || a.MemoryKiB > maxArgonKiB ||
		a.Threads < 1 || a.Threads > maxArgonThreads || uint64(a.Time)*uint64(a.MemoryKiB) > maxArgonPassesKiB {
		return fmt.Errorf("argon2id with time %d, %d KiB, %d threads is out of bounds", a.Time, a.MemoryKiB, a.Threads)
	}
	return nil
}

func (s *Slot) validate() error {
	if !isHex(s.ID, slotIDBytes) {
		return fmt.Errorf("its id isn't %d bytes in hex", slotIDBytes)
	}
	if !isLabel(s.Label) {
		return fmt.Errorf("its label isn't printable or has more than %d bytes", maxLabelBytes)
	}
	if s.Created.IsZero() {
		return errors.New("it doesn't say when it was created")
	}
	if len(s.Salt) != slotSaltBytes || len(s.Wrapped) != wrappedBytes {
		return fmt.Errorf("it has a salt of %d and a wrapped key of %d bytes, not %d and %d",
			len(s.Salt), len(s.Wrapped), slotSaltBytes, wrappedBytes)
	}
	switch {
	case s.Kind == kindPassphrase && s.Argon2id != nil:
		return s.Argon2id.validate()
	case s.Kind == kindKeyFile && s.Argon2id == nil:
		return nil
	default:
		return fmt.Errorf("it is of kind %q, and has argon2id parameters: %v", s.Kind, s.Argon2id != nil)
	}
}

// newSlot wraps the data key.
func newSlot(k *Keys, remoteID string, secret Secret, o SlotOptions) (Slot, error) {
	o = o.withDefaults()
	s := Slot{Kind: secret.kind, Label: o.Label, Created: o.Now().UTC().Truncate(time.Second), Salt: make([]byte, slotSaltBytes)}
	if secret.kind == kindPassphrase {
		s.Argon2id = &o.Argon2id
	}
	id := make([]byte, slotIDBytes)
	for _, b := range [][]byte{id, s.Salt} {
		if _, err := io.ReadFull(o.Random, b); err != nil {
			return Slot{}, fmt.Errorf("make a key slot: %w", err)
		}
	}
	s.ID = hex.EncodeToString(id)
	s.Wrapped = make([]byte, wrappedBytes)
	if err := s.validate(); err != nil { // before argon2id is started with parameters of any size
		return Slot{}, fmt.Errorf("make a key slot: %w", err)
	}
	key := s.key(secret)
	defer clear(key[:])
	// The nonce may be zero: a slot's key is made from its salt and seals one thing.
	s.Wrapped = aeadOf(&key).Seal(nil, make([]byte, nonceBytes), k.data[:], s.additional(remoteID))
	return s, nil
}

// open unwraps the data key; nil when the secret isn't this slot's.
func (s *Slot) open(remoteID string, secret Secret) *Keys {
	if s.Kind != secret.kind {
		return nil
	}
	key := s.key(secret)
	defer clear(key[:])
	plain, err := aeadOf(&key).Open(nil, make([]byte, nonceBytes), s.Wrapped, s.additional(remoteID))
	if err != nil || len(plain) != keyBytes {
		return nil
	}
	defer clear(plain)
	var data [keyBytes]byte
	defer clear(data[:])
	copy(data[:], plain)
	return keysOf(&data)
}

// key is what wraps the data key. Preconditions: the slot is valid; the secret is of its kind.
func (s *Slot) key(secret Secret) (key [keyBytes]byte) {
	if s.Kind == kindPassphrase {
		derived := argon2.IDKey(secret.bytes, s.Salt, s.Argon2id.Time, s.Argon2id.MemoryKiB, s.Argon2id.Threads, keyBytes)
		copy(key[:], derived)
		clear(derived)
		return key
	}
	material := append(bytes.Clone(secret.bytes), s.Salt...)
	defer clear(material)
	blake3.DeriveKey(contextKeyFile, material, key[:])
	return key
}

func (s *Slot) additional(remoteID string) []byte {
	return []byte(contextSlot + remoteID + " " + s.Kind)
}
