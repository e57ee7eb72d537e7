package httpapi

import (
	"encoding/json"
	"net/http"
	"sync"
)

// maxLineBytes bounds a line a client reads: base64 of one write, and room for the last line's checkpoint.
const maxLineBytes = 2 << 20

// lineWriter answers in x-ndjson lines, sent as they come; they may come from several goroutines.
type lineWriter struct {
	mu   sync.Mutex // held over the write: lines don't interleave
	body *bodyWriter
}

func newLineWriter(w http.ResponseWriter) *lineWriter {
	return &lineWriter{body: newBodyWriter(w, "application/x-ndjson")}
}

func (l *lineWriter) write(v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.body.Write(append(p, '\n'))
	return err
}

// end writes the last line, or returns err when nothing has been written and it can be the whole answer.
func (l *lineWriter) end(err error, last any) error {
	l.mu.Lock()
	started := l.body.started
	l.mu.Unlock()
	if err != nil && !started {
		return err
	}
	l.write(last) // a client that has gone doesn't see the end
	return nil
}

// outputLines is the io.Writer of one stream.
type outputLines struct {
	l    *lineWriter
	name string
}

func (o outputLines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxDataBytes)
		if err := o.l.write(OutputLine{o.name, rest[:n]}); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}
