package guest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A frame is a header and a body. Integers are little-endian, checksums CRC-32C.
//
//	offset  bytes  what
//	     0      4  marker F1 A5 C0 DE
//	     4      1  type
//	     5      1  sub: the stream's number, a request's operation, a response's outcome; else 0
//	     6      2  zero
//	     8      8  generation of the session
//	    16      4  id: of the request, and of the streams that belong to it; of the hold
//	    20      4  length of the body, at most 1 MiB
//	    24      4  checksum of the body
//	    28      4  checksum of bytes 0 to 27
//	    32         body
//
// Bodies by type:
//
//	HELLO     host→guest  helloBody. Its first fields and the header never change, whatever the protocol's version
//	ACK       guest→host  ackBody: the session has begun. As HELLO
//	REFUSE    guest→host  ackBody with a code and a message. As HELLO
//	REQUEST   host→guest  by operation (messages.go)
//	RESPONSE  guest→host  sub 0: by operation; sub 1: JSON AgentError
//	CANCEL    host→guest  empty: the caller of this request has gone
//	DATA      both        position of the first byte in its stream, then at least one byte of the stream
//	END       host→guest  position of the end of the stream
//	CREDIT    both        position: consumed up to here; position: may be sent up to here
//	HOLD      host→guest  empty: write HELD as your last frame
//	HELD      guest→host  empty: nothing follows until RELEASE
//	RELEASE   host→guest  empty
//
// A position is a count of bytes since the stream began, in 8 bytes of 7 bits each, so none of them is the marker's.
// The marker isn't valid UTF-8 (C0 never is), so no body of texts or of JSON (body.go) holds it, and DATA is cut inside it. A marker in a body
// therefore means that the frame was never finished.
const (
	headerBytes   = 32
	maxBodyBytes  = 1 << 20
	positionBytes = 8
	maxPosition   = 1<<(7*positionBytes) - 1

	// maxDataBytes lets a whole frame fit into one 32 KiB buffer of a virtio serial port.
	maxDataBytes = 32<<10 - headerBytes - positionBytes
)

type frameType byte

const (
	typeHello frameType = iota + 1
	typeAck
	typeRefuse
	typeRequest
	typeResponse
	typeCancel
	typeData
	typeEnd
	typeCredit
	typeHold
	typeHeld
	typeRelease
	typeLimit // first unused
)

// Streams of a request.
const (
	streamIn  = 0 // host→guest: standard input, files copied in
	streamOut = 1 // guest→host: standard output, files copied out
	streamErr = 2 // guest→host: standard error
)

var (
	marker     = [4]byte{0xF1, 0xA5, 0xC0, 0xDE}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

type frame struct {
	Type       frameType
	Sub        byte
	Generation uint64
	ID         uint32
	Body       []byte
}

// appendFrame appends the encoded frame to dst.
// Precondition: the body is at most maxBodyBytes long and doesn't contain the marker.
func appendFrame(dst []byte, f frame) []byte {
	if len(f.Body) > maxBodyBytes || bytes.Contains(f.Body, marker[:]) {
		panic("guest: a frame's body is too long or holds the marker")
	}
	at := len(dst)
	dst = append(dst, make([]byte, headerBytes)...)
	dst = append(dst, f.Body...)
	putHeader(dst[at:], f)
	return dst
}

// putHeader fills the header of the frame that p begins with; its body is in place.
func putHeader(p []byte, f frame) {
	le := binary.LittleEndian
	body := p[headerBytes:]
	copy(p, marker[:])
	p[4], p[5], p[6], p[7] = byte(f.Type), f.Sub, 0, 0
	le.PutUint64(p[8:], f.Generation)
	le.PutUint32(p[16:], f.ID)
	le.PutUint32(p[20:], uint32(len(body)))
	le.PutUint32(p[24:], crc32.Checksum(body, castagnoli))
	le.PutUint32(p[28:], crc32.Checksum(p[:28], castagnoli))
}

// validHeader tells whether p begins with an intact header, and how long the body is.
// Precondition: p holds at least headerBytes.
func validHeader(p []byte) (bodyBytes int, ok bool) {
	le := binary.LittleEndian
	if !bytes.Equal(p[:4], marker[:]) || le.Uint32(p[28:]) != crc32.Checksum(p[:28], castagnoli) {
		return 0, false
	}
	n := le.Uint32(p[20:])
	return int(n), n <= maxBodyBytes && p[4] != 0 && p[4] < byte(typeLimit) && p[6] == 0 && p[7] == 0
}

// cutInsideMarker gives how many of p's bytes may go into one frame: all, or up to the middle of the first marker.
func cutInsideMarker(p []byte) int {
	if i := bytes.Index(p, marker[:]); i >= 0 {
		return i + len(marker)/2
	}
	return len(p)
}

// putPosition writes a position. 72 PB have to pass before it panics.
func putPosition(p []byte, off uint64) {
	if off > maxPosition {
		panic("guest: a stream is longer than a position can say")
	}
	for i := range positionBytes {
		p[i] = byte(off>>(7*i)) & 0x7f
	}
}

// position reads one; false when there is none.
func position(p []byte) (off uint64, ok bool) {
	if len(p) < positionBytes {
		return 0, false
	}
	for i := range positionBytes {
		if p[i] >= 0x80 {
			return 0, false
		}
		off |= uint64(p[i]) << (7 * i)
	}
	return off, true
}
