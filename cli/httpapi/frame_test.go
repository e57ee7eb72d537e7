package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"flash/vmm/guest"
)

func frames(t testing.TB, f func(w *frameWriter)) []byte {
	t.Helper()
	var b bytes.Buffer
	f(&frameWriter{w: &b})
	return b.Bytes()
}

func TestFramesAreAsDocumented(t *testing.T) {
	got := frames(t, func(w *frameWriter) {
		w.write(frameStdout, []byte("hi"))
		w.write(frameResize, encodeSize(guest.WindowSize{Rows: 24, Cols: 0x150}))
		w.write(frameStdin, nil)
	})
	want := []byte("\x02\x00\x00\x00\x02hi" + "\x04\x00\x00\x00\x04\x00\x18\x01\x50" + "\x01\x00\x00\x00\x00")
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestLongDataBecomesSeveralFrames(t *testing.T) {
	data := bytes.Repeat([]byte{1, 2, 3}, maxDataBytes)
	r := bytes.NewReader(frames(t, func(w *frameWriter) { w.write(frameStderr, data) }))
	var got, buf []byte
	for {
		kind, p, err := readFrame(r, &buf)
		if err == io.EOF {
			break
		}
		if err != nil || kind != frameStderr || len(p) == 0 {
			t.Fatal(kind, len(p), err)
		}
		got = append(got, p...)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, or others", len(got), len(data))
	}
}

func TestFramesThatAreNoneAreRefusedBeforeTheyAreRead(t *testing.T) {
	for name, p := range map[string]string{
		"no such kind":  "\x09\x00\x00\x00\x00",
		"kind 0":        "\x00\x00\x00\x00\x00",
		"too long":      "\x01\x00\x01\x00\x01",
		"longest":       "\x02\xff\xff\xff\xff",
		"long signal":   "\x05\x00\x00\x00\x11",
		"long size":     "\x04\x00\x00\x00\x05",
		"long exitcode": "\x06\x00\x10\x00\x01",
	} {
		var buf []byte
		if _, _, err := readFrame(bytes.NewReader([]byte(p)), &buf); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(buf) > 0 {
			t.Errorf("%s: %d bytes were allocated", name, cap(buf))
		}
	}
}

func TestTornFrameIsNotTheEnd(t *testing.T) {
	whole := frames(t, func(w *frameWriter) { w.write(frameStdout, []byte("hello")) })
	for n := 1; n < len(whole); n++ {
		var buf []byte
		if _, _, err := readFrame(bytes.NewReader(whole[:n]), &buf); err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}

func TestClientThatIgnoresTheWindowIsCutOff(t *testing.T) {
	in := newInput(&frameWriter{w: io.Discard})
	p := frames(t, func(w *frameWriter) {
		w.write(frameStdin, make([]byte, stdinWindow))
		w.write(frameStdin, []byte{1})
	})
	if err := in.pump(bufio.NewReader(bytes.NewReader(p))); !errors.Is(err, errFrame) {
		t.Errorf("got %v", err)
	}
}

func TestAcknowledgingMoreThanWasSentIsRefused(t *testing.T) {
	c := newCredit()
	c.take(10)
	if err := c.give(11); !errors.Is(err, errFrame) {
		t.Errorf("got %v", err)
	}
	if err := c.give(10); err != nil {
		t.Error(err)
	}
}

// FuzzServerInput feeds a server whatever a client may send: it ends with an error and holds no more than a window.
func FuzzServerInput(f *testing.F) {
	f.Add(frames(f, func(w *frameWriter) {
		w.write(frameStdin, []byte("input"))
		w.write(frameResize, encodeSize(guest.WindowSize{Rows: 1, Cols: 2}))
		w.write(frameSignal, []byte("INT"))
		w.write(frameStdin, nil)
	}))
	f.Add([]byte("\x05\x00\x00\x00\x03int"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, p []byte) {
		in := newInput(&frameWriter{w: io.Discard})
		if err := in.pump(bufio.NewReader(bytes.NewReader(p))); err == nil {
			t.Error("it ended without an error")
		}
		if n := len(in.stdin.data); n > stdinWindow {
			t.Errorf("%d bytes are held", n)
		}
	})
}

// FuzzClientInput feeds a client whatever a server may send.
func FuzzClientInput(f *testing.F) {
	f.Add(frames(f, func(w *frameWriter) {
		w.write(frameStdout, []byte("out"))
		w.write(frameStderr, []byte("err"))
		w.write(frameExit, []byte(`{"exit_code":3,"exec_id":"e"}`))
	}))
	f.Add(frames(f, func(w *frameWriter) { w.write(frameError, []byte(`{"error":{"code":"internal"}}`)) }))
	f.Add(frames(f, func(w *frameWriter) { w.write(frameTaken, []byte{0, 0, 0, 9}) }))
	f.Fuzz(func(t *testing.T, p []byte) {
		var out bytes.Buffer
		receive(bytes.NewReader(p), guest.Streams{Stdout: &out, Stderr: io.Discard}, newCredit())
		if out.Len() > len(p) {
			t.Errorf("%d bytes of output from %d", out.Len(), len(p))
		}
	})
}
