package local

import (
	"encoding/binary"
	"math/bits"
)

// filter is a blocked Bloom filter: a key sets six bits in one block of 512, which is one cache line. With ten bits a
// key about one absent key in a hundred gets through. Keys are hashes already, so their own bits choose: the first eight
// bytes the block, in the order of the entries; the last six the bits.
type filter []uint64

const (
	filterBlockWords = 8
	filterBlockBytes = 8 * filterBlockWords
	filterBitsPerKey = 10
	filterProbes     = 6
)

func newFilter(keys int64) filter {
	blocks := (keys*filterBitsPerKey + 8*filterBlockBytes - 1) / (8 * filterBlockBytes)
	return make(filter, max(blocks, 1)*filterBlockWords)
}

func parseFilter(p []byte) filter {
	f := make(filter, len(p)/8)
	for i := range f {
		f[i] = binary.LittleEndian.Uint64(p[i*8:])
	}
	return f
}

// block gives k's block and the bits that choose within it: the last six bytes of the key, a byte a probe.
func (f filter) block(k key) ([]uint64, []byte) {
	n, _ := bits.Mul64(keyTop(k), uint64(len(f)/filterBlockWords))
	return f[n*filterBlockWords : (n+1)*filterBlockWords], k[keyBytes-filterProbes:]
}

func (f filter) add(k key) {
	block, choice := f.block(k)
	for i, c := range choice {
		w, b := probe(i, c)
		block[w] |= 1 << b
	}
}

func (f filter) mayHold(k key) bool {
	if len(f) == 0 {
		return true
	}
	block, choice := f.block(k)
	for i, c := range choice {
		w, b := probe(i, c)
		if block[w]&(1<<b) == 0 {
			return false
		}
	}
	return true
}

// probe i looks at one of four words, two bits of c, at the bit the other six say. Odd and even probes start at
// different words so that all eight are used.
func probe(i int, c byte) (word, bit int) {
	return (int(c>>6) + 4*(i&1)) & 7, int(c & 63)
}
