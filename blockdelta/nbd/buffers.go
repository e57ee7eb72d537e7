package nbd

import (
	"math/bits"
	"sync"
)

// Buffers of requests are kept in classes of 4 KiB, 8 KiB … 32 MiB, each with room for a reply's header in front, so
// that a READ is answered with one write.
const (
	leastClassBits = 12
	classes        = 25 - leastClassBits + 1
)

// This doesn't compile unless the longest request fits the last class.
const _ = uint(1<<(leastClassBits+classes-1) - MaxRequestBytes)

var pools [classes]sync.Pool

// buffer is a reply's header and data.
type buffer struct {
	bytes []byte // replyHeaderBytes + the class's size
	class int
}

// takeBuffer gives a buffer for n data bytes, n ≤ MaxRequestBytes. What is in it is undefined.
func takeBuffer(n int) *buffer {
	class := max(0, bits.Len(uint(max(n, 1)-1))-leastClassBits)
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, replyHeaderBytes+1<<(leastClassBits+class)), class}
}

func (b *buffer) data(n int) []byte    { return b.bytes[replyHeaderBytes : replyHeaderBytes+n] }
func (b *buffer) header() []byte       { return b.bytes[:replyHeaderBytes] }
func (b *buffer) message(n int) []byte { return b.bytes[:replyHeaderBytes+n] }

func (b *buffer) giveBack() { pools[b.class].Put(b) }
