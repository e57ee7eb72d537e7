package guest

import (
	"errors"
	"math"
	"time"
)

// Bodies that a restored guest meets before it has answered its first command are binary: under emulation every
// instruction that runs for the first time has to be translated, and JSON brings thousands of them. All others are JSON.
//
// A body is a sequence of fields without names, in the order of messages.go:
//
//	number  groups of 6 bits, the lowest first, each but the last with 0x40 set; at most 11 bytes
//	text    number of bytes, then the bytes, which are valid UTF-8
//	texts   number of texts, then the texts
//	secret  number of bytes, then two bytes for each: its lower and its upper 4 bits
//
// So no byte but a text's has its highest bit set, and no body holds the marker.

const (
	groupBits = 6
	groupMore = 1 << groupBits
)

func appendNumber(p []byte, n uint64) []byte {
	for n >= groupMore {
		p = append(p, groupMore|byte(n)&(groupMore-1))
		n >>= groupBits
	}
	return append(p, byte(n))
}

func appendText(p []byte, s string) []byte { return append(appendNumber(p, uint64(len(s))), s...) }

func appendTexts(p []byte, list []string) []byte {
	p = appendNumber(p, uint64(len(list)))
	for _, s := range list {
		p = appendText(p, s)
	}
	return p
}

func appendSecret(p, secret []byte) []byte {
	p = appendNumber(p, uint64(len(secret)))
	for _, b := range secret {
		p = append(p, b&15, b>>4)
	}
	return p
}

// flags packs up to 6 of them into a number.
func flags(set ...bool) (n uint64) {
	for i, on := range set {
		if on {
			n |= 1 << i
		}
	}
	return n
}

// fields reads a body. After the first field that isn't there, or isn't what it must be, all are zero.
type fields struct {
	p   []byte
	bad bool
}

var errBody = errors.New("a message's body isn't of this protocol")

// end says whether all of the body has been read and made sense.
func (f *fields) end() error {
	if f.bad || len(f.p) > 0 {
		return errBody
	}
	return nil
}

func (f *fields) spoil() { f.p, f.bad = nil, true }

func (f *fields) number() (n uint64) {
	for i, b := range f.p {
		if b >= 2*groupMore || i == 10 && b > 1<<(64-10*groupBits)-1 || i > 0 && b == 0 { // 64 bits, in the only way to write them
			break
		}
		n |= uint64(b&(groupMore-1)) << (groupBits * i)
		if b < groupMore {
			f.p = f.p[i+1:]
			return n
		}
	}
	f.spoil()
	return 0
}

// nanos reads a number of nanoseconds, which a time.Duration can hold.
func (f *fields) nanos() time.Duration {
	n := f.number()
	if n > math.MaxInt64 {
		f.spoil()
		return 0
	}
	return time.Duration(n)
}

// count reads the number of things of at least unitBytes that follow: there can't be more than the body holds.
func (f *fields) count(unitBytes int) int {
	n := f.number()
	if n > uint64(len(f.p)/unitBytes) {
		f.spoil()
		return 0
	}
	return int(n)
}

func (f *fields) text() string {
	n := f.count(1)
	s := string(f.p[:n])
	f.p = f.p[n:]
	return s
}

func (f *fields) texts() (list []string) {
	n := f.count(1)
	if n == 0 {
		return nil
	}
	list = make([]string, n)
	for i := range list {
		list[i] = f.text()
	}
	return list
}

func (f *fields) secret() (secret []byte) {
	n := f.count(2)
	if n == 0 {
		return nil
	}
	secret = make([]byte, n)
	for i := range secret {
		low, high := f.p[2*i], f.p[2*i+1]
		if low > 15 || high > 15 {
			f.spoil()
			return nil
		}
		secret[i] = low | high<<4
	}
	f.p = f.p[2*n:]
	return secret
}

// flags reads what flags packed.
func (f *fields) flags(into ...*bool) {
	n := f.number()
	for i, on := range into {
		*on = n>>i&1 != 0
	}
	if n>>len(into) != 0 {
		f.spoil()
	}
}
