package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
)

// Secret opens a slot: a passphrase or a key file. It prints as "[secret]".
type Secret struct {
	redacted
	kind  string
	bytes []byte
}

// Kinds of slots, as the marker names them.
const (
	kindPassphrase = "passphrase"
	kindKeyFile    = "key-file"
)

const (
	keyFileMagic = "FLASH-KEY-1 "

	maxPassphraseBytes = 64 << 10
	maxKeyFileBytes    = 64 << 10
)

// ErrNotKeyFile is a text that isn't a key file's.
var ErrNotKeyFile = errors.New("this isn't a key file of flash: it has one line, FLASH-KEY-1 and 44 characters of base64")

// Passphrase makes a secret of a passphrase, byte for byte: a newline at its end is part of it. p is copied.
func Passphrase(p []byte) (Secret, error) {
	if len(p) == 0 || len(p) > maxPassphraseBytes {
		return Secret{}, fmt.Errorf("a passphrase has 1 to %d bytes, this one %d", maxPassphraseBytes, len(p))
	}
	return Secret{kind: kindPassphrase, bytes: bytes.Clone(p)}, nil
}

// KeyFile makes a secret of a key file's text, of which it keeps nothing.
func KeyFile(text []byte) (Secret, error) {
	key, err := parseKeyFile(text)
	if err != nil {
		return Secret{}, err
	}
	return Secret{kind: kindKeyFile, bytes: key[:]}, nil
}

// NewKeyFile makes a key and gives it as a key file's text.
func NewKeyFile(random io.Reader) ([]byte, error) {
	var key [keyBytes]byte
	defer clear(key[:])
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return nil, fmt.Errorf("make a key file: %w", err)
	}
	return keyFileText(&key, "flash: a key file. Who has it opens the remotes it was added to."), nil
}

// KeysFromExport takes back what Keys.Export gave, without a marker. Whether it is the right one shows when an object is
// opened.
func KeysFromExport(text []byte) (*Keys, error) {
	data, err := parseKeyFile(text)
	if err != nil {
		return nil, err
	}
	defer clear(data[:])
	return keysOf(data), nil
}

// Wipe clears the secret's bytes.
func (s Secret) Wipe() { clear(s.bytes) }

func keyFileText(key *[keyBytes]byte, comments ...string) []byte {
	var text []byte
	for _, c := range comments {
		text = append(append(append(text, "# "...), c...), '\n')
	}
	text = append(text, keyFileMagic...)
	text = base64.StdEncoding.AppendEncode(text, key[:])
	return append(text, '\n')
}

func parseKeyFile(text []byte) (*[keyBytes]byte, error) {
	if len(text) > maxKeyFileBytes {
		return nil, ErrNotKeyFile
	}
	var key *[keyBytes]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		encoded, marked := bytes.CutPrefix(line, []byte(keyFileMagic))
		if !marked || key != nil || len(encoded) != base64.StdEncoding.EncodedLen(keyBytes) {
			return nil, ErrNotKeyFile
		}
		var room [keyBytes + 1]byte // 44 characters could be 33 bytes
		n, err := base64.StdEncoding.Strict().Decode(room[:], encoded)
		if err != nil || n != keyBytes {
			clear(room[:])
			return nil, ErrNotKeyFile
		}
		key = new([keyBytes]byte)
		copy(key[:], room[:])
		clear(room[:])
	}
	if key == nil {
		return nil, ErrNotKeyFile
	}
	return key, nil
}
