package castest

import (
	"math/rand/v2"

	"flash/cas"
)

// Chunks makes n different chunks, the same for the same seed: most are pages that compress to about half, one in eight
// is noise, one in sixteen a node with an annotation.
func Chunks(h cas.Hasher, seed uint64, n int) []cas.Chunk {
	rng := rand.New(rand.NewPCG(seed, 0x666c617368))
	chunks := make([]cas.Chunk, n)
	for i := range chunks {
		c := &chunks[i]
		c.Kind = cas.KindData
		switch {
		case i%16 == 15:
			c.Kind = cas.KindNode
			c.Data = fill(rng, make([]byte, 200+rng.IntN(3000)), 4)
			c.Named = len(c.Data) * 2 / 3
		case i%8 == 7:
			c.Data = fill(rng, make([]byte, cas.SlotBytes), 1)
		default:
			c.Data = fill(rng, make([]byte, cas.SlotBytes), 2)
		}
		c.Hash = h.Sum(c.Data[:c.NamedBytes()])
	}
	return chunks
}

// fill makes p noise, in runs of 8 bytes of which one in every sparseness is not zero.
func fill(rng *rand.Rand, p []byte, sparseness int) []byte {
	for at := 0; at < len(p); at += 8 {
		v := rng.Uint64()
		if at > 0 && rng.IntN(sparseness) != 0 {
			continue
		}
		for j := at; j < min(at+8, len(p)); j++ {
			p[j] = byte(v >> (8 * (j - at)))
		}
	}
	return p
}
