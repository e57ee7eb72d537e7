package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"flash/vmm/host"
)

// uploadIdle is how long an upload may send nothing.
const uploadIdle = 2 * time.Minute

func (s *Server) copyIn(w http.ResponseWriter, r *http.Request) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	defer rc.SetReadDeadline(time.Time{})
	if err := s.api.CopyIn(r.Context(), r.PathValue("vm_id"), path, &idleReader{r.Body, rc}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) copyOut(w http.ResponseWriter, r *http.Request) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	out := newBodyWriter(w, "application/x-tar")
	return out.end(s.api.CopyOut(r.Context(), r.PathValue("vm_id"), path, out))
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	follow, err := queryBool(r, "follow")
	if err != nil {
		return err
	}
	out := newBodyWriter(w, "text/plain; charset=utf-8")
	ctx := r.Context()
	if follow {
		var cancel func()
		ctx, cancel = s.untilShutdown(ctx)
		defer cancel()
	}
	return out.end(s.api.Logs(ctx, r.PathValue("vm_id"), follow, out))
}

func queryPath(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if p == "" {
		return "", host.Errorf(host.CodeInvalid, "add ?path=/somewhere", "the query has no path")
	}
	return p, nil
}

// idleReader gives each read its own deadline.
type idleReader struct {
	body io.Reader
	rc   *http.ResponseController
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.rc.SetReadDeadline(time.Now().Add(uploadIdle))
	return r.body.Read(p)
}

// bodyWriter is an answer's body that is sent as it comes. The status line goes with the first byte, so that a
// failure before it keeps its own status; a later one goes into the trailer.
type bodyWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	kind    string
	started bool
}

func newBodyWriter(w http.ResponseWriter, contentType string) *bodyWriter {
	return &bodyWriter{w: w, rc: http.NewResponseController(w), kind: contentType}
}

func (b *bodyWriter) start() {
	if !b.started {
		b.started = true
		b.w.Header().Set("Content-Type", b.kind)
		b.w.Header().Set("Trailer", errorTrailer)
		b.w.WriteHeader(http.StatusOK)
	}
}

func (b *bodyWriter) Write(p []byte) (int, error) {
	b.start()
	n, err := b.w.Write(p)
	if err == nil {
		err = b.rc.Flush()
	}
	return n, err
}

// end finishes the body. It returns the error only when it can still be an answer of its own.
func (b *bodyWriter) end(err error) error {
	if err != nil && !b.started {
		return err
	}
	b.start()
	if err != nil {
		if p, mErr := json.Marshal(ErrorOf(err)); mErr == nil {
			b.w.Header().Set(errorTrailer, string(p))
		}
	}
	return nil
}
