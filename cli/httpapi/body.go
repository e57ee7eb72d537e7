package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"flash/vmm/host"
)

const (
	maxBodyBytes = 1 << 20
	bodyTimeout  = 30 * time.Second // for a JSON body to arrive
	replyTimeout = 30 * time.Second // for a JSON answer to be taken
)

const bodyRemedy = "the routes and their fields are in the package comment of cli/httpapi"

// readBody decodes the whole request body into v. An empty body is refused: what is missing doesn't default to something.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	p, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return host.Errorf(host.CodeInvalid, "send files with PUT …/files", "the request's body is longer than %d bytes", maxBodyBytes)
	case err != nil:
		return host.Errorf(host.CodeInvalid, "send it again", "reading the request's body: %w", err)
	}
	return decodeStrict(p, v)
}

// decodeStrict decodes exactly one JSON value of known fields.
func decodeStrict(p []byte, v any) error {
	text := strings.TrimSpace(string(p))
	if text == "" {
		return host.Errorf(host.CodeInvalid, bodyRemedy, "the request has no body; it needs a JSON object")
	}
	if text[0] != '{' { // null would decode into anything
		return host.Errorf(host.CodeInvalid, bodyRemedy, "the request's body isn't a JSON object")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return host.Errorf(host.CodeInvalid, bodyRemedy, "the request's body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return host.Errorf(host.CodeInvalid, bodyRemedy, "the request's body goes on after its JSON object")
	}
	return nil
}

// requestID joins the body's request id with the header's. Two different ones are refused.
func requestID(r *http.Request, inBody string) (string, error) {
	key := r.Header.Get("Idempotency-Key")
	switch {
	case key == "" || key == inBody:
		return inBody, nil
	case inBody == "":
		return key, nil
	}
	return "", host.Errorf(host.CodeInvalid, "give one of them", "Idempotency-Key is %q but request_id is %q", key, inBody)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	p, err := json.Marshal(v)
	if err != nil {
		status = http.StatusInternalServerError
		p = fmt.Appendf(nil, `{"error":{"code":%q,"message":%q,"remedy":"report this"}}`, host.CodeInternal, "encoding the answer: "+err.Error())
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(replyTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(p, '\n')) // a client that has gone needs no answer
}
