package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
)

// message is one line from the monitor: exactly one of greeting, event, reply.
//
//	{"QMP": {"version": …}}                                   greeting, once, first
//	{"event": NAME, "data": {…}, "timestamp": …}              at any time
//	{"return": …, "id": N}  |  {"error": {"class","desc"}, "id": N}
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Data     json.RawMessage `json:"data"`
	Return   json.RawMessage `json:"return"`
	Error    *qmpError       `json:"error"`
	ID       *uint64         `json:"id"`
}

// qmpError is QEMU's refusal of a command.
type qmpError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (e *qmpError) Error() string { return fmt.Sprintf("QEMU says %q (%s)", e.Desc, e.Class) }

// event is something QEMU tells unasked.
type event struct {
	name string
	data json.RawMessage
}

// maxMessageBytes bounds a line. The longest seen is "info usernet" with many connections, some 100 KB.
const maxMessageBytes = 4 << 20

var errNotQMP = errors.New("not a message of the monitor")

// parseMessage decodes one line. A reply without an id can't be matched to its command and is refused, but for an error:
// that is how QEMU answers what it couldn't read.
func parseMessage(line []byte) (message, error) {
	if len(line) > maxMessageBytes {
		return message{}, fmt.Errorf("%w: %d bytes", errNotQMP, len(line))
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("%w: %.80q: %v", errNotQMP, line, err)
	}
	kinds := 0
	for _, is := range []bool{m.Greeting != nil, m.Event != "", m.Return != nil, m.Error != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return message{}, fmt.Errorf("%w: %.80q is %d kinds of message", errNotQMP, line, kinds)
	}
	if m.Return != nil && m.ID == nil {
		return message{}, fmt.Errorf("%w: %.80q answers no command", errNotQMP, line)
	}
	return m, nil
}

// command is one line to the monitor.
type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// greetedVersion is the version a greeting tells, "7.2.22"; "" if it tells none.
func greetedVersion(greeting json.RawMessage) string {
	var g struct {
		Version struct {
			QEMU *struct{ Major, Minor, Micro int } `json:"qemu"`
		} `json:"version"`
	}
	if json.Unmarshal(greeting, &g) != nil || g.Version.QEMU == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", g.Version.QEMU.Major, g.Version.QEMU.Minor, g.Version.QEMU.Micro)
}
