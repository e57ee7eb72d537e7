package guest

import (
	"encoding/json"
	"fmt"
	"time"
)

// helloBody begins a session. Its first two fields stay what they are in every version.
type helloBody struct {
	Protocol int    `json:"protocol"`
	Nonce    string `json:"nonce"` // chosen anew by each Connect; tells its answers from those to others
	Seed     []byte `json:"seed"`  // random bytes, for a guest that has just booted and has none
}

// ackBody answers a HELLO: with Code set it is a refusal.
type ackBody struct {
	Nonce string `json:"nonce"`
	Info
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
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

type execBody struct {
	ExecRequest
	NoInput bool `json:"no_input,omitempty"` // the standard input is empty
}

// attachBody asks for the output from an offset on; negative: from what is left.
type attachBody struct {
	ID     string `json:"id"`
	Stdout int64  `json:"stdout"`
	Stderr int64  `json:"stderr"`
}

// execReply comes after all the output has been sent.
type execReply struct {
	Exit   ExitStatus `json:"exit"`
	Stdout span       `json:"stdout"`
	Stderr span       `json:"stderr"`
}

// span is what part of a stream was sent.
type span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
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

type freezeBody struct {
	Limit time.Duration `json:"limit"`
}

type pathBody struct {
	Path string `json:"path"`
}

// encodeBody encodes what we made ourselves; it can only be too long.
func encodeBody(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	p, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(p) > maxBodyBytes {
		return nil, fmt.Errorf("a request of %d bytes is longer than the %d that fit into a frame", len(p), maxBodyBytes)
	}
	return p, nil
}
