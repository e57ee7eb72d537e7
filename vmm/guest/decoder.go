package guest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// decoder finds frames in a stream of bytes, whatever lies between them. The zero value is ready.
//
// What it finds doesn't depend on how the bytes were cut into reads (FuzzDecoder).
type decoder struct {
	buf     []byte // bytes not yet given out start at buf[at]
	at      int
	scanned int // bytes of the unfinished body at the front that are known to hold no intact header

	skippedBytes uint64 // thrown away while looking for a frame
}

const readBytes = 64 << 10 // room for one read: two buffers of a virtio serial port

// space gives room for the next read. Bodies given out before are overwritten.
func (d *decoder) space() []byte {
	if d.at > 0 {
		d.buf = d.buf[:copy(d.buf, d.buf[d.at:])]
		d.at = 0
	}
	need := len(d.buf) + 4096
	if len(d.buf) == 0 {
		need = readBytes
		if cap(d.buf) > 2*readBytes {
			d.buf = nil // a big frame is over
		}
	} else if len(d.buf) >= headerBytes {
		if n, ok := validHeader(d.buf); ok {
			need = max(need, headerBytes+n) // bounded by validHeader
		}
	}
	if cap(d.buf) < need {
		d.buf = append(make([]byte, 0, max(need, readBytes)), d.buf...)
	}
	return d.buf[len(d.buf):cap(d.buf)]
}

// filled says that n bytes of what space gave have been read.
func (d *decoder) filled(n int) { d.buf = d.buf[:len(d.buf)+n] }

// pendingBytes is how much has been read that is no whole frame yet.
func (d *decoder) pendingBytes() int { return len(d.buf) - d.at }

// next gives the next whole frame. Its body is good until the next call of space.
func (d *decoder) next() (f frame, ok bool) {
	for {
		p := d.buf[d.at:]
		if i := bytes.Index(p, marker[:]); i < 0 {
			d.skip(max(0, len(p)-len(marker)+1)) // the marker may have been cut
			return f, false
		} else if i > 0 {
			d.skip(i)
			continue
		}
		if len(p) < headerBytes {
			return f, false
		}
		n, intact := validHeader(p)
		if !intact {
			d.skip(1)
			continue
		}
		if len(p) < headerBytes+n {
			if !d.dropStump(p[headerBytes:]) {
				return f, false
			}
			continue
		}
		body := p[headerBytes : headerBytes+n]
		le := binary.LittleEndian
		if crc32.Checksum(body, castagnoli) != le.Uint32(p[24:]) || bytes.Contains(body, marker[:]) {
			d.skip(1)
			continue
		}
		d.at += headerBytes + n
		d.scanned = 0
		return frame{Type: frameType(p[4]), Sub: p[5], Generation: le.Uint64(p[8:]), ID: le.Uint32(p[16:]), Body: body}, true
	}
}

// dropStump drops the unfinished frame at the front if another one begins inside its body: the rest of it was never
// written, because its writer is a former life of the guest or of the host.
func (d *decoder) dropStump(body []byte) bool {
	for {
		i := bytes.Index(body[d.scanned:], marker[:])
		if i < 0 {
			d.scanned = max(d.scanned, len(body)-len(marker)+1)
			return false
		}
		d.scanned += i
		if len(body) < d.scanned+headerBytes {
			return false // can't tell yet
		}
		if _, ok := validHeader(body[d.scanned:]); ok {
			d.skip(headerBytes + d.scanned)
			return true
		}
		d.scanned++
	}
}

func (d *decoder) skip(n int) {
	d.at += n
	d.skippedBytes += uint64(n)
	d.scanned = 0
}
