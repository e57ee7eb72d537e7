package guest

import (
	"bytes"
	"testing"
)

// FuzzRing compares a ring with a plain slice under any sequence of writes and discards.
func FuzzRing(f *testing.F) {
	f.Add([]byte{10, 200, 3, 130, 255, 1, 0, 77})
	f.Add(bytes.Repeat([]byte{255, 129, 3}, 50))
	f.Fuzz(func(t *testing.T, script []byte) {
		r := ring{max: 20000}
		var model []byte
		base, next := uint64(0), byte(0)
		for _, b := range script {
			if b < 128 { // write
				p := make([]byte, int(b)*150)
				for i := range p {
					next = next*31 + 7
					p[i] = next
				}
				n := r.write(p)
				if want := min(len(p), 20000-len(model)); n != want {
					t.Fatalf("took %d bytes of %d with %d inside, not %d", n, len(p), len(model), want)
				}
				model = append(model, p[:n]...)
			} else { // discard
				n := min(int(b-128)*200, len(model))
				r.discard(base + uint64(n))
				base += uint64(n)
				model = model[n:]
			}
			got := make([]byte, len(model)+1)
			if n := r.copyAt(got, base); n != len(model) || !bytes.Equal(got[:n], model) {
				t.Fatalf("%d bytes inside, want %d, or they differ", n, len(model))
			}
		}
	})
}
