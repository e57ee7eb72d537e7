package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/blake3"
)

const keyBytes = 32

// Contexts of derived keys. Each names one use; none may ever be used for another.
const (
	contextNames    = "flash 2026 seal 1 names"
	contextContents = "flash 2026 seal 1 contents"
	contextSalts    = "flash 2026 seal 1 salts"
	contextCheck    = "flash 2026 seal 1 check"
	contextKeyFile  = "flash 2026 seal 1 key file"
	contextSlot     = "flash 2026 seal 1 slot "
)

// Keys are a remote's data key and what is derived from it. They print as "[secret]".
type Keys struct {
	redacted
	data  [keyBytes]byte
	wiped bool
	objectKeys
}

// objectKeys are what sealing objects needs. The data key isn't among them.
type objectKeys struct {
	names, contents, salts [keyBytes]byte
}

// newKeys makes the keys of a new remote.
func newKeys(random io.Reader) (*Keys, error) {
	var data [keyBytes]byte
	if _, err := io.ReadFull(random, data[:]); err != nil {
		return nil, fmt.Errorf("make a data key: %w", err)
	}
	defer clear(data[:])
	return keysOf(&data), nil
}

// keysOf derives everything from a data key, which it copies.
func keysOf(data *[keyBytes]byte) *Keys {
	k := &Keys{data: *data}
	blake3.DeriveKey(contextNames, k.data[:], k.names[:])
	blake3.DeriveKey(contextContents, k.data[:], k.contents[:])
	blake3.DeriveKey(contextSalts, k.data[:], k.salts[:])
	return k
}

// Wipe clears the keys, which can't be used from then on. Buckets that were wrapped with them go on.
func (k *Keys) Wipe() {
	clear(k.data[:])
	k.objectKeys = objectKeys{}
	k.wiped = true
}

// Export gives the data key as a key file's text. Who has it reads everything in the remote, for ever: rotating slots
// doesn't end that.
func (k *Keys) Export(remoteID string) []byte {
	k.mustBeWhole()
	return keyFileText(&k.data,
		"flash: the data key of the remote "+remoteID+".",
		"It opens everything in that remote, whatever becomes of its passphrases. It can't be withdrawn.")
}

func (k *Keys) mustBeWhole() {
	if k == nil || k.wiped {
		panic("seal: keys are used that are absent or were wiped") // sealing with zeros would look as if all were well
	}
}

// checkBytes of a marker tell the right data key from a wrong one.
const checkBytes = 16

func (k *Keys) check(remoteID string) []byte {
	var key [keyBytes]byte
	defer clear(key[:])
	blake3.DeriveKey(contextCheck, k.data[:], key[:])
	sum := keyed(&key, []byte(remoteID))
	return sum[:checkBytes]
}

func (k *Keys) passes(check []byte, remoteID string) bool {
	return subtle.ConstantTimeCompare(k.check(remoteID), check) == 1
}

// keyedHasher begins a keyed hash.
func keyedHasher(key *[keyBytes]byte) *blake3.Hasher {
	h, err := blake3.NewKeyed(key[:])
	if err != nil {
		panic(fmt.Sprintf("seal: BLAKE3 refused a key of %d bytes: %v", len(key), err)) // it refuses other lengths only
	}
	return h
}

func keyed(key *[keyBytes]byte, parts ...[]byte) (sum [keyBytes]byte) {
	h := keyedHasher(key)
	for _, p := range parts {
		h.Write(p) // never fails
	}
	h.Sum(sum[:0])
	return sum
}

// aeadOf is AES-256-GCM with a 12-byte nonce and a 16-byte tag.
func aeadOf(key *[keyBytes]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(fmt.Sprintf("seal: AES refused a key of %d bytes: %v", len(key), err)) // it refuses other lengths only
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("seal: GCM refused AES: %v", err)) // it refuses other block sizes only
	}
	return aead
}

// opaqueMark begins the last element of a stored key.
const opaqueMark = "="

// storedKey says under which key of the bucket below a plain or a stored key lies.
func (k *objectKeys) storedKey(key string) string {
	if key == MarkerKey {
		return key
	}
	folders, last := splitKey(key)
	if isOpaque(last) {
		return key
	}
	sum := keyed(&k.names, []byte(key))
	return folders + opaqueMark + hex.EncodeToString(sum[:])
}

// splitKey cuts a key before its last element; folders is empty or ends in '/'.
func splitKey(key string) (folders, last string) {
	i := strings.LastIndexByte(key, '/') + 1
	return key[:i], key[i:]
}

// isOpaque tells whether a last element is a stored key's.
func isOpaque(last string) bool {
	digits, marked := strings.CutPrefix(last, opaqueMark)
	return marked && len(digits) == 2*keyBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

// saltHasher begins the hash that becomes an object's salt; the plain bytes are written to it.
func (k *objectKeys) saltHasher(storedKey string) *blake3.Hasher {
	h := keyedHasher(&k.salts)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(storedKey)))) // never fails
	h.WriteString(storedKey)
	return h
}

// objectAEAD is the cipher of one object.
func (k *objectKeys) objectAEAD(h header, storedKey string) cipher.AEAD {
	encoded := h.encode()
	key := keyed(&k.contents, encoded[:], []byte(storedKey))
	defer clear(key[:])
	return aeadOf(&key)
}
