package httpapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"flash/vmm/guest"
)

// Protocol is what both sides name in the header Upgrade. Another version has another name.
const Protocol = "flash-exec/1"

// A frame, in both directions, integers big-endian:
//
//	offset  width  field
//	0       1      kind
//	1       4      length of the payload in bytes, at most maxPayload(kind)
//	5       length payload
//
//	kind  from    payload
//	1     client  stdin bytes; empty: end of stdin, once
//	2     server  stdout bytes
//	3     server  stderr bytes
//	4     client  window size: rows, columns, 2 bytes each
//	5     client  signal name without SIG: "INT", "TERM", "HUP", …
//	6     server  the end: the same JSON object as the last line of the x-ndjson stream
//	7     server  the end: {"error":{…},"exec_id":"…"}
//	8     server  4 bytes: so many bytes of stdin were taken
//
// Output needs no acknowledgement: TCP holds it back. Stdin does, for a command that doesn't read must not hold back the
// signal behind it: a client has at most stdinWindow bytes of stdin unacknowledged; one that sends more is cut off.
// A connection that ends before a frame 6 or 7 means the other side is gone; the server then kills the exec.
const (
	frameStdin  = 1
	frameStdout = 2
	frameStderr = 3
	frameResize = 4
	frameSignal = 5
	frameExit   = 6
	frameError  = 7
	frameTaken  = 8
)

const (
	frameHeaderBytes = 5
	maxDataBytes     = 64 << 10
	maxSignalBytes   = 16
	stdinWindow      = 256 << 10 // 4 frames of maxDataBytes
)

var errFrame = errors.New("not a frame of " + Protocol)

// maxPayload bounds a payload before it is allocated. -1: no such kind.
func maxPayload(kind byte) int {
	switch kind {
	case frameStdin, frameStdout, frameStderr:
		return maxDataBytes
	case frameResize, frameTaken:
		return 4
	case frameSignal:
		return maxSignalBytes
	case frameExit, frameError:
		return maxBodyBytes
	}
	return -1
}

// readFrame reads one frame into buf, which it may grow; the payload is valid until the next call with that buffer.
// io.EOF at a frame's edge, io.ErrUnexpectedEOF within one.
func readFrame(r io.Reader, buf *[]byte) (kind byte, payload []byte, err error) {
	var h [frameHeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	kind, length := h[0], int64(binary.BigEndian.Uint32(h[1:]))
	if limit := maxPayload(kind); limit < 0 || length > int64(limit) {
		return 0, nil, fmt.Errorf("kind %d of %d bytes: %w", kind, length, errFrame)
	}
	if int64(cap(*buf)) < length {
		*buf = make([]byte, length)
	}
	payload = (*buf)[:length]
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, payload, nil
}

// frameWriter writes frames of several goroutines to one connection.
type frameWriter struct {
	mu sync.Mutex // held over the write: frames don't interleave
	w  io.Writer
}

// write sends p as one frame; data that is too long for one becomes several.
func (f *frameWriter) write(kind byte, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for limit := maxPayload(kind); ; {
		n := min(len(p), limit)
		head := make([]byte, frameHeaderBytes, frameHeaderBytes+256)
		head[0] = kind
		binary.BigEndian.PutUint32(head[1:], uint32(n))
		var err error
		if n <= 256 {
			_, err = f.w.Write(append(head, p[:n]...))
		} else {
			// On a net.Conn this is one writev; the payload isn't copied.
			_, err = (&net.Buffers{head, p[:n]}).WriteTo(f.w)
		}
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
}

// stream is the io.Writer of one data kind.
type stream struct {
	f    *frameWriter
	kind byte
}

func (s stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.f.write(s.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func encodeSize(s guest.WindowSize) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Cols)
}

func decodeSize(p []byte) (guest.WindowSize, error) {
	if len(p) != 4 {
		return guest.WindowSize{}, fmt.Errorf("window size of %d bytes: %w", len(p), errFrame)
	}
	return guest.WindowSize{Rows: binary.BigEndian.Uint16(p), Cols: binary.BigEndian.Uint16(p[2:])}, nil
}

// decodeSignal accepts upper-case letters and digits only: what every signal's name is made of.
func decodeSignal(p []byte) (string, error) {
	if len(p) == 0 {
		return "", fmt.Errorf("signal without a name: %w", errFrame)
	}
	for _, c := range p {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return "", fmt.Errorf("signal %q: %w", p, errFrame)
		}
	}
	return string(p), nil
}

func decodeTaken(p []byte) (int, error) {
	if len(p) != 4 {
		return 0, fmt.Errorf("acknowledgement of %d bytes: %w", len(p), errFrame)
	}
	return int(binary.BigEndian.Uint32(p)), nil
}
