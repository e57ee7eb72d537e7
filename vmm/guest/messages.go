package guest

import (
	"encoding/json"
	"fmt"
	"time"
)

// helloBody begins a session. Its first two fields stay what they are in every version.
//
//	number protocol, text nonce, secret seed
type helloBody struct {
	Protocol int
	Nonce    string // chosen anew by each Connect; tells its answers from those to others
	Seed     []byte // random bytes, for a guest that has just booted and has none
}

func (b helloBody) appendTo(p []byte) []byte {
	return appendSecret(appendText(appendNumber(p, uint64(b.Protocol)), b.Nonce), b.Seed)
}

func decodeHello(p []byte) (b helloBody, err error) {
	f := fields{p: p}
	b.Protocol, b.Nonce = int(f.number()), f.text()
	if b.Protocol != Protocol && !f.bad {
		return b, nil // what follows is that version's
	}
	b.Seed = f.secret()
	return b, f.end()
}

// ackBody answers a HELLO: with Code set it is a refusal. Its first two fields stay what they are in every version.
//
//	number protocol, text nonce, text version, text boot id, text code, text message
type ackBody struct {
	Info
	Nonce   string
	Code    string
	Message string
}

func (b ackBody) appendTo(p []byte) []byte {
	p = appendText(appendNumber(p, uint64(b.Protocol)), b.Nonce)
	return appendText(appendText(appendText(appendText(p, b.Version), b.BootID), b.Code), b.Message)
}

func decodeAck(p []byte) (b ackBody, err error) {
	f := fields{p: p}
	b.Protocol, b.Nonce = int(f.number()), f.text()
	if b.Protocol != Protocol && !f.bad {
		return b, nil
	}
	b.Version, b.BootID, b.Code, b.Message = f.text(), f.text(), f.text(), f.text()
	return b, f.end()
}

// Operations, the sub of a REQUEST.
const (
	opExec     = iota + 1 // execBody → execReply; streams in, out, err
	opAttach              // attachBody → execReply; streams in, out, err
	opExecs               // – → []ExecInfo
	opKill                // idBody → –
	opSignal              // signalBody → –
	opResize              // resizeBody → –
	opFreeze              // freezeBody → –
	opThaw                // – → –
	opRepair              // Repair → –
	opCopyIn              // pathBody → –; stream in
	opCopyOut             // pathBody → copyReply; stream out
	opSync                // – → –
	opShutdown            // – → –
)

// Outcomes, the sub of a RESPONSE.
const (
	outcomeDone   = 0
	outcomeFailed = 1
)

type idBody struct {
	ID string `json:"id"`
}

// execBody is an ExecRequest.
//
//	text id, texts argv, texts env, text cwd, text user, number rows, number cols, number timeout in ns,
//	number flags: 1 tty, 2 stdin, 4 thaw, 8 the standard input is empty
type execBody struct {
	ExecRequest
	NoInput bool
}

func (b execBody) appendTo(p []byte) []byte {
	p = appendTexts(appendTexts(appendText(p, b.ID), b.Argv), b.Env)
	p = appendText(appendText(p, b.Cwd), b.User)
	p = appendNumber(appendNumber(p, uint64(b.Rows)), uint64(b.Cols))
	p = appendNumber(p, uint64(max(0, b.Timeout)))
	return appendNumber(p, flags(b.TTY, b.Stdin, b.Thaw, b.NoInput))
}

func decodeExec(p []byte) (b execBody, err error) {
	f := fields{p: p}
	b.ID, b.Argv, b.Env = f.text(), f.texts(), f.texts()
	b.Cwd, b.User = f.text(), f.text()
	b.Rows, b.Cols = uint16(f.number()), uint16(f.number())
	b.Timeout = f.nanos()
	f.flags(&b.TTY, &b.Stdin, &b.Thaw, &b.NoInput)
	return b, f.end()
}

// attachBody asks for the output from an offset on; negative: from what is left.
type attachBody struct {
	ID     string `json:"id"`
	Stdout int64  `json:"stdout"`
	Stderr int64  `json:"stderr"`
}

// execReply comes after all the output has been sent.
//
//	number exit code, text signal, number flags: 1 timed out; of stdout, then of stderr: number from, number to
type execReply struct {
	Exit   ExitStatus
	Stdout span
	Stderr span
}

// span is what part of a stream was sent.
type span struct{ From, To uint64 }

func (b execReply) appendTo(p []byte) []byte {
	p = appendText(appendNumber(p, uint64(uint32(b.Exit.Code))), b.Exit.Signal)
	p = appendNumber(p, flags(b.Exit.TimedOut))
	for _, part := range [...]span{b.Stdout, b.Stderr} {
		p = appendNumber(appendNumber(p, part.From), part.To)
	}
	return p
}

func decodeExecReply(p []byte) (b execReply, err error) {
	f := fields{p: p}
	b.Exit.Code, b.Exit.Signal = int(int32(f.number())), f.text()
	f.flags(&b.Exit.TimedOut)
	b.Stdout.From, b.Stdout.To = f.number(), f.number()
	b.Stderr.From, b.Stderr.To = f.number(), f.number()
	return b, f.end()
}

// A Repair travels as
//
//	number wall clock in ns since 1970 or 0, secret seed, text generation, text host name, text MAC,
//	number flags: 1 hooks, 2 thaw
func (r Repair) appendTo(p []byte) []byte {
	now := uint64(0)
	if !r.Now.IsZero() {
		now = uint64(max(0, r.Now.UnixNano()))
	}
	p = appendSecret(appendNumber(p, now), r.Seed)
	p = appendText(appendText(appendText(p, r.Generation), r.Hostname), r.MAC)
	return appendNumber(p, flags(r.Hooks, r.Thaw))
}

func decodeRepair(p []byte) (r Repair, err error) {
	f := fields{p: p}
	if now := f.nanos(); now != 0 {
		r.Now = time.Unix(0, int64(now))
	}
	r.Seed = f.secret()
	r.Generation, r.Hostname, r.MAC = f.text(), f.text(), f.text()
	f.flags(&r.Hooks, &r.Thaw)
	return r, f.end()
}

type copyReply struct {
	Bytes uint64 `json:"bytes"`
}

type signalBody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type resizeBody struct {
	ID string `json:"id"`
	WindowSize
}

// freezeBody: number limit in ns.
type freezeBody struct{ Limit time.Duration }

func (b freezeBody) appendTo(p []byte) []byte { return appendNumber(p, uint64(max(0, b.Limit))) }

func decodeFreeze(p []byte) (b freezeBody, err error) {
	f := fields{p: p}
	b.Limit = f.nanos()
	return b, f.end()
}

type pathBody struct {
	Path string `json:"path"`
}

// appender is a body that isn't JSON.
type appender interface{ appendTo([]byte) []byte }

// encodeBody encodes what we made ourselves; it can only be too long.
func encodeBody(v any) (p []byte, err error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case appender:
		p = v.appendTo(make([]byte, 0, 512))
	default:
		if p, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if len(p) > maxBodyBytes {
		return nil, fmt.Errorf("a request of %d bytes is longer than the %d that fit into a frame", len(p), maxBodyBytes)
	}
	return p, nil
}
