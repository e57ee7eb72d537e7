package nbd

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/semaphore"

	"flash/blockdelta"
)

// script is a peer that says what was written down before and never listens.
type script struct {
	io.Reader
	answers bytes.Buffer
}

func (s *script) Write(p []byte) (int, error) { return s.answers.Write(p) }

type fixedExports struct{ overlay *blockdelta.Overlay }

func (f fixedExports) export(name string) (*blockdelta.Overlay, bool) {
	return f.overlay, name == "disk0"
}
func (fixedExports) names() []string { return []string{"disk0"} }

func option(kind uint32, data []byte) []byte {
	p := append([]byte("IHAVEOPT"), be.AppendUint32(be.AppendUint32(nil, kind), uint32(len(data)))...)
	return append(p, data...)
}

func FuzzNegotiate(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3})
	f.Add(append([]byte{0, 0, 0, 3}, option(7, infoData("disk0", 3))...))
	f.Add(append([]byte{0, 0, 0, 1}, option(1, []byte("disk0"))...))
	f.Add(append(append([]byte{0, 0, 0, 1}, option(3, nil)...), option(6, infoData("other", 0, 1, 2, 3))...))
	f.Add(append(append([]byte{0, 0, 0, 3}, option(8, nil)...), option(2, nil)...))
	f.Add(append([]byte{0, 0, 0, 3}, "IHAVEOPT\x00\x00\x00\x07\xff\xff\xff\xff"...))
	o, err := blockdelta.New(zeroBase{blocks: 8}, f.TempDir())
	must(f, err)
	f.Cleanup(func() { _ = o.Close() })
	f.Fuzz(func(t *testing.T, p []byte) {
		peer := &script{Reader: bytes.NewReader(p)}
		n := negotiation{conn: peer, exports: fixedExports{o}}
		chosen, err := n.run()
		if (chosen == nil) == (err == nil) {
			t.Fatalf("chosen %v, error %v: exactly one is wanted", chosen, err)
		}
		if chosen != nil && !bytes.Contains(p, []byte("disk0")) {
			t.Fatal("an export was chosen that was never named")
		}
		if answers := peer.answers.Len(); answers > 18+maxOptions*(20+20+20+20+200) {
			t.Fatalf("%d bytes were answered with %d", len(p), answers)
		}
	})
}

func requestBytes(command, flags uint16, off uint64, length uint32, data ...byte) []byte {
	p := be.AppendUint32(nil, 0x25609513)
	p = be.AppendUint64(be.AppendUint16(be.AppendUint16(p, flags), command), 77)
	return append(be.AppendUint32(be.AppendUint64(p, off), length), data...)
}

func FuzzRequests(f *testing.F) {
	const disk = 8 * blockdelta.BlockBytes
	f.Add(requestBytes(0, 0, 0, 4096))
	f.Add(append(requestBytes(1, 1, 100, 4, 1, 2, 3, 4), requestBytes(0, 0, 100, 4)...))
	f.Add(append(requestBytes(3, 0, 0, 0), requestBytes(2, 0, 0, 0)...))
	f.Add(append(requestBytes(6, 2, 1, disk-1), requestBytes(4, 0, 1<<63, 1<<31)...))
	f.Add(requestBytes(1, 0, 1<<64-1, 8, 1, 2))
	f.Add(requestBytes(5, 0xffff, 1<<64-1, 1<<32-1))
	o, err := blockdelta.New(zeroBase{blocks: disk / blockdelta.BlockBytes}, f.TempDir())
	must(f, err)
	f.Cleanup(func() { _ = o.Close() })
	f.Fuzz(func(t *testing.T, p []byte) {
		var inFlight atomic.Int64
		peer := &script{Reader: bytes.NewReader(p)}
		tr := transmission{conn: peer, overlay: o, inFlight: &inFlight, onBreak: func() {},
			failed:   func(q request, err error) { t.Logf("%+v: %v", q, err) }, // a hang-up cancels what is in flight
			requests: semaphore.NewWeighted(maxConnRequests), bytes: semaphore.NewWeighted(maxConnInFlightBytes)}
		_ = tr.run(context.Background())
		if inFlight.Load() != 0 {
			t.Fatalf("%d requests in flight after the end", inFlight.Load())
		}
		if sent, least := peer.answers.Len(), len(p)/requestHeaderBytes; sent > least*(replyHeaderBytes+disk) {
			t.Fatalf("%d bytes of answers to at most %d requests", sent, least)
		}
	})
}
