package guest

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// goldenBodies are one of each kind that isn't JSON.
var goldenBodies = []appender{
	helloBody{Protocol: Protocol, Nonce: "n", Seed: []byte{0xF1, 0xA5, 0xC0, 0xDE}},
	ackBody{Info: Info{Protocol: Protocol, Version: "v", BootID: "b"}, Nonce: "n"},
	ackBody{Info: Info{Protocol: Protocol, Version: "v", BootID: "b"}, Nonce: "n", Code: CodeStale, Message: "no"},
	execBody{ExecRequest: ExecRequest{ID: "x", Argv: []string{"true", "", "ä"}, Env: []string{"A=1"}, Cwd: "/", User: "ann", TTY: true, Rows: 24, Cols: 300,
		Stdin: true, Timeout: time.Minute, Thaw: true}, NoInput: true},
	execReply{Exit: ExitStatus{Code: 137, Signal: "KILL", TimedOut: true}, Stdout: span{1, 1 << 40}, Stderr: span{0, math.MaxUint64}},
	Repair{Now: time.Unix(1893456000, 5), Seed: bytes.Repeat([]byte{0xDE, 0x01}, 32), Generation: "vm-1", Hostname: "vm", MAC: "52:54:00:00:00:01", Hooks: true, Thaw: true},
	freezeBody{Limit: time.Second},
}

// decodeLike decodes a body of the same kind as like.
func decodeLike(like appender, p []byte) (appender, error) {
	switch like.(type) {
	case helloBody:
		return decodeHello(p)
	case ackBody:
		return decodeAck(p)
	case execBody:
		return decodeExec(p)
	case execReply:
		return decodeExecReply(p)
	case Repair:
		return decodeRepair(p)
	}
	return decodeFreeze(p)
}

func TestBodiesComeBackAsTheyWere(t *testing.T) {
	zeros := []appender{execBody{}, execReply{}, Repair{}, freezeBody{}, helloBody{Protocol: Protocol}, ackBody{Info: Info{Protocol: Protocol}}}
	for _, b := range append(zeros, goldenBodies...) {
		p := b.appendTo(nil)
		got, err := decodeLike(b, p)
		if err != nil || !reflect.DeepEqual(got, b) {
			t.Errorf("%+v came back as %+v, %v", b, got, err)
		}
		for cut := range p {
			if got, err := decodeLike(b, p[:cut]); err == nil {
				t.Errorf("%T cut after %d bytes of %d is taken for %+v", b, cut, len(p), got)
			}
		}
		if _, err := decodeLike(b, append(p, 0)); err == nil {
			t.Errorf("%T with a byte too many is taken", b)
		}
	}
}

// A host or an agent of another version must be able to tell the version, whatever else it says.
func TestTheFirstFieldsOfAHelloAreThoseOfEveryVersion(t *testing.T) {
	p := append(appendText(appendNumber(nil, Protocol+1), "nonce"), "whatever"...)
	if h, err := decodeHello(p); err != nil || h.Protocol != Protocol+1 || h.Nonce != "nonce" {
		t.Errorf("HELLO: %+v, %v", h, err)
	}
	if a, err := decodeAck(p); err != nil || a.Protocol != Protocol+1 || a.Nonce != "nonce" {
		t.Errorf("ACK: %+v, %v", a, err)
	}
}

func TestACountBeyondTheBodyAllocatesNothing(t *testing.T) {
	huge := appendNumber(nil, math.MaxUint64)
	for name, read := range map[string]func(*fields){
		"text":   func(f *fields) { f.text() },
		"texts":  func(f *fields) { f.texts() },
		"secret": func(f *fields) { f.secret() },
	} {
		f := fields{p: append(huge, strings.Repeat("x", 100)...)}
		if read(&f); f.end() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Whatever is decoded can be written and read again, and a body whose texts are not the marker does not hold it.
func FuzzBodies(f *testing.F) {
	for i, b := range goldenBodies {
		f.Add(uint8(i), b.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, kind uint8, p []byte) {
		like := goldenBodies[int(kind)%len(goldenBodies)]
		b, err := decodeLike(like, p)
		if err != nil {
			return
		}
		again, err := decodeLike(like, b.appendTo(nil))
		if err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("%+v was written and read as %+v, %v", b, again, err)
		}
		if bytes.Contains(p, marker[:]) == false && bytes.Contains(b.appendTo(nil), marker[:]) {
			t.Fatalf("%+v holds the marker", b)
		}
	})
}
