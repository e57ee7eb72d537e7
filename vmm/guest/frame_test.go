package guest

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func putData(off uint64, text string) []byte {
	p := make([]byte, positionBytes)
	putPosition(p, off)
	return append(p, text...)
}

// goldenFrames are one of each type, and one of each binary body, as version 2 of the protocol writes them.
var goldenFrames = []frame{
	{Type: typeHello, Generation: 7, Body: goldenBodies[0].appendTo(nil)},
	{Type: typeAck, Generation: 7, Body: goldenBodies[1].appendTo(nil)},
	{Type: typeRefuse, Generation: 7, Body: goldenBodies[2].appendTo(nil)},
	{Type: typeRequest, Sub: opExec, Generation: 7, ID: 1, Body: goldenBodies[3].appendTo(nil)},
	{Type: typeData, Sub: streamOut, Generation: 7, ID: 1, Body: putData(0xDEC0A5F1, "out")},
	{Type: typeEnd, Sub: streamIn, Generation: 7, ID: 1, Body: putData(300, "")},
	{Type: typeCredit, Sub: streamOut, Generation: 7, ID: 1, Body: append(putData(3, ""), putData(3+windowBytes, "")...)},
	{Type: typeResponse, Sub: outcomeDone, Generation: 7, ID: 1, Body: goldenBodies[4].appendTo(nil)},
	{Type: typeRequest, Sub: opRepair, Generation: 7, ID: 2, Body: goldenBodies[5].appendTo(nil)},
	{Type: typeRequest, Sub: opFreeze, Generation: 7, ID: 3, Body: goldenBodies[6].appendTo(nil)},
	{Type: typeRequest, Sub: opKill, Generation: 7, ID: 4, Body: []byte(`{"id":"x"}`)},
	{Type: typeCancel, Generation: 1 << 63, ID: 1<<32 - 1},
	{Type: typeHold, Generation: 7, ID: 2},
	{Type: typeHeld, Generation: 7, ID: 2},
	{Type: typeRelease, Generation: 7, ID: 2},
}

func TestFramesAreWrittenAsEver(t *testing.T) {
	var text strings.Builder
	var wire []byte
	for _, f := range goldenFrames {
		p := appendFrame(nil, f)
		wire = append(wire, p...)
		text.WriteString(hex.EncodeToString(p) + "\n")
	}
	const golden = "testdata/frames-v2.hex"
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the frames differ from %s:\n%s", golden, &text)
	}
	got := decodeAll(wire, len(wire))
	if len(got) != len(goldenFrames) {
		t.Fatalf("%d frames of %d were found", len(got), len(goldenFrames))
	}
	for i, f := range goldenFrames {
		if !sameFrame(got[i], f) {
			t.Errorf("frame %d came back as %+v", i, got[i])
		}
	}
}

// decodeAll feeds bytes in pieces of at most step and gives the frames found.
func decodeAll(wire []byte, step int) (found []frame) {
	var d decoder
	for {
		for f, ok := d.next(); ok; f, ok = d.next() {
			f.Body = bytes.Clone(f.Body)
			found = append(found, f)
		}
		if len(wire) == 0 {
			return found
		}
		n := copy(d.space(), wire[:min(step, len(wire))])
		d.filled(n)
		wire = wire[n:]
	}
}

func sameFrame(a, b frame) bool {
	return a.Type == b.Type && a.Sub == b.Sub && a.Generation == b.Generation && a.ID == b.ID && bytes.Equal(a.Body, b.Body)
}

func TestHelloIsFoundInsideAnUnfinishedFrame(t *testing.T) {
	data := appendFrame(nil, frame{Type: typeData, Sub: streamIn, Generation: 1, ID: 9, Body: putData(0, strings.Repeat("x", 30000))})
	hello := appendFrame(nil, goldenFrames[0])
	for _, cut := range []int{1, 3, headerBytes - 1, headerBytes, headerBytes + 1, 1000, len(data) - 1} {
		for _, step := range []int{1, 7, 1 << 20} {
			wire := append(append([]byte("garbage\xf1\xa5"), data[:cut]...), hello...)
			got := decodeAll(wire, step)
			if len(got) != 1 || !sameFrame(got[0], goldenFrames[0]) {
				t.Errorf("cut after %d bytes, read %d at a time: found %+v", cut, step, got)
			}
		}
	}
}

func TestDamagedFramesAreDroppedAlone(t *testing.T) {
	wire := appendFrame(nil, goldenFrames[3])
	next := appendFrame(nil, goldenFrames[4])
	for at := range wire {
		damaged := bytes.Clone(wire)
		damaged[at] ^= 0x10
		got := decodeAll(append(damaged, next...), 64)
		if len(got) != 1 || !sameFrame(got[0], goldenFrames[4]) {
			t.Errorf("byte %d damaged: found %+v", at, got)
		}
	}
}

func TestStreamsThatHoldFramesDoNotConfuse(t *testing.T) {
	// Somebody cats a recording of this very protocol.
	var recording []byte
	for _, f := range goldenFrames {
		recording = appendFrame(recording, f)
	}
	s := newOutStream(outputBytes)
	l := newLink(nil)
	if _, err := s.attach(l, 1, 1, streamOut, 0); err != nil {
		t.Fatal(err)
	}
	s.Write(recording)
	var got []byte
	buf := make([]byte, headerBytes+positionBytes+maxDataBytes)
	for {
		p, _ := s.fill(buf)
		if len(p) == 0 {
			break
		}
		for _, f := range decodeAll(p, 1) { // the inner frames would win over the unfinished outer one
			if f.Type != typeData {
				t.Fatalf("a frame of type %d came out of a stream", f.Type)
			}
			got = append(got, f.Body[positionBytes:]...)
		}
	}
	if !bytes.Equal(got, recording) {
		t.Fatalf("%d bytes of %d came through", len(got), len(recording))
	}
}

func FuzzDecoder(f *testing.F) {
	var wire []byte
	for _, g := range goldenFrames {
		wire = appendFrame(wire, g)
	}
	f.Add(wire, uint16(1))
	f.Add(append([]byte("x\xf1\xa5\xc0"), wire[40:]...), uint16(5))
	f.Add(append(bytes.Clone(wire[:50]), wire...), uint16(33))
	inner := append(bytes.Clone(wire[:headerBytes+4]), marker[:]...)
	f.Add(append(inner, wire...), uint16(2))
	f.Fuzz(func(t *testing.T, wire []byte, step uint16) {
		at := 1 + int(step)%len(append(wire, 0))
		whole, pieces := decodeAll(wire, max(1, len(wire))), decodeAll(wire, at)
		if len(whole) != len(pieces) {
			t.Fatalf("%d frames read at once, %d read by %d bytes", len(whole), len(pieces), at)
		}
		for i := range whole {
			if !sameFrame(whole[i], pieces[i]) {
				t.Fatalf("frame %d differs", i)
			}
			if bytes.Contains(whole[i].Body, marker[:]) || len(whole[i].Body) > maxBodyBytes {
				t.Fatalf("frame %d can't have been written by us", i)
			}
			if again := decodeAll(appendFrame(nil, whole[i]), 1<<20); len(again) != 1 || !sameFrame(again[0], whole[i]) {
				t.Fatalf("frame %d doesn't survive being written again", i)
			}
		}
	})
}
