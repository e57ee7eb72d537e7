package guest

// ring holds the bytes of a stream from offset base to offset end, at most max of them. Its buffer grows when needed, and
// starts over at the same addresses whenever it is empty, so that a quiet stream keeps touching the same page.
type ring struct {
	buf   []byte
	start int // index of base in buf
	base  uint64
	end   uint64
	max   int
}

const (
	ringFirstBytes = 4 << 10
	ringGrowth     = 4 // times: what is outgrown is garbage, and garbage is dirty pages
)

func (r *ring) lenBytes() int  { return int(r.end - r.base) }
func (r *ring) roomBytes() int { return r.max - r.lenBytes() }

// space gives free room that follows the end, not all there is; empty when the ring is full.
func (r *ring) space() []byte {
	n := r.lenBytes()
	if n == len(r.buf) && n < r.max {
		grown := make([]byte, min(r.max, max(ringFirstBytes, ringGrowth*len(r.buf))))
		r.copyAt(grown[:n], r.base)
		r.buf, r.start = grown, 0
	}
	if len(r.buf) == 0 {
		return nil
	}
	from := (r.start + n) % len(r.buf)
	if from < r.start || n == len(r.buf) {
		return r.buf[from:r.start]
	}
	return r.buf[from:]
}

// filled says that n bytes of what space gave are now part of the stream.
func (r *ring) filled(n int) { r.end += uint64(n) }

// write takes as many of p's bytes as fit.
func (r *ring) write(p []byte) (n int) {
	for len(p) > 0 {
		s := r.space()
		if len(s) == 0 {
			break
		}
		m := copy(s, p)
		r.filled(m)
		p = p[m:]
		n += m
	}
	return n
}

// at gives the bytes from offset off on that lie together; they stay valid until discarded, even when the ring grows.
// Precondition: base ≤ off ≤ end.
func (r *ring) at(off uint64) []byte {
	n := int(r.end - off)
	if n == 0 {
		return nil
	}
	i := (r.start + int(off-r.base)) % len(r.buf)
	return r.buf[i:min(len(r.buf), i+n)]
}

// copyAt copies bytes from offset off on.
func (r *ring) copyAt(dst []byte, off uint64) (n int) {
	for n < len(dst) {
		p := r.at(off + uint64(n))
		if len(p) == 0 {
			break
		}
		n += copy(dst[n:], p)
	}
	return n
}

// discard forgets the bytes before offset off.
func (r *ring) discard(off uint64) {
	if off <= r.base {
		return
	}
	off = min(off, r.end)
	if len(r.buf) > 0 {
		r.start = (r.start + int(off-r.base)) % len(r.buf)
	}
	r.base = off
	if r.base == r.end {
		r.start = 0
	}
}

// drop forgets everything and gives the buffer back.
func (r *ring) drop() {
	r.base, r.start, r.buf = r.end, 0, nil
}
