package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"flash/vmm/host"
)

// statusClientGone is what nginx made customary for a request whose client went away; no standard has one.
const statusClientGone = 499

// Exit codes of the program, fixed by its users' scripts.
const (
	ExitRefused = 1   // refused or failed
	ExitUsage   = 2   // wrong usage, which is found before anybody is asked
	ExitNotRun  = 125 // exec failed before the command ran
)

// kind is how the doors tell one code.
type kind struct{ status, exit int }

// kinds is the one table from codes to HTTP statuses and exit codes. TestEveryCodeHasItsStatusAndExitCode keeps it whole.
var kinds = map[host.Code]kind{
	host.CodeInvalid:            {http.StatusBadRequest, ExitRefused},
	host.CodeUnauthorized:       {http.StatusUnauthorized, ExitRefused},
	host.CodeVMNotFound:         {http.StatusNotFound, ExitRefused},
	host.CodeCheckpointNotFound: {http.StatusNotFound, ExitRefused},
	host.CodeBundleNotFound:     {http.StatusNotFound, ExitRefused},
	host.CodeExecNotFound:       {http.StatusNotFound, ExitRefused},
	host.CodePathNotFound:       {http.StatusNotFound, ExitRefused},
	host.CodeExecInterrupted:    {http.StatusConflict, ExitRefused},
	host.CodeVMExists:           {http.StatusConflict, ExitRefused},
	host.CodeVMNotRunning:       {http.StatusConflict, ExitRefused},
	host.CodeVMBusy:             {http.StatusConflict, ExitRefused},
	host.CodeVMPinned:           {http.StatusConflict, ExitRefused},
	host.CodeVMRunning:          {http.StatusConflict, ExitRefused},
	host.CodeBundleExists:       {http.StatusConflict, ExitRefused},
	host.CodeIncompatible:       {http.StatusConflict, ExitRefused},
	host.CodeNothingChecked:     {http.StatusConflict, ExitRefused},
	host.CodeRemoteNotFound:     {http.StatusNotFound, ExitRefused},
	host.CodeRemoteExists:       {http.StatusConflict, ExitRefused},
	host.CodeRemoteInUse:        {http.StatusConflict, ExitRefused},
	host.CodeRemoteLocked:       {http.StatusConflict, ExitRefused},
	host.CodeNotOwner:           {http.StatusConflict, ExitRefused},
	host.CodeRemoteRefused:      {http.StatusBadGateway, ExitRefused},
	host.CodeRemoteUnreachable:  {http.StatusServiceUnavailable, ExitRefused},
	host.CodeExecFailed:         {http.StatusUnprocessableEntity, ExitNotRun},
	host.CodeCanceled:           {statusClientGone, ExitRefused},
	host.CodeInternal:           {http.StatusInternalServerError, ExitRefused},
	host.CodeCorrupt:            {http.StatusInternalServerError, ExitRefused},
	host.CodeEngine:             {http.StatusInternalServerError, ExitRefused},
	host.CodeUnsupported:        {http.StatusNotImplemented, ExitRefused},
	host.CodeGuestCrashed:       {http.StatusBadGateway, ExitRefused},
	host.CodeNoEngine:           {http.StatusServiceUnavailable, ExitRefused},
	host.CodeStoreLocked:        {http.StatusServiceUnavailable, ExitRefused},
	host.CodeDaemon:             {http.StatusServiceUnavailable, ExitRefused},
	host.CodeGuest:              {http.StatusGatewayTimeout, ExitRefused},
	host.CodeDeadline:           {http.StatusGatewayTimeout, ExitRefused},
	host.CodeNoSpace:            {http.StatusInsufficientStorage, ExitRefused},
	host.CodeStoreFull:          {http.StatusInsufficientStorage, ExitRefused},
}

// StatusOf gives a code's HTTP status. A code this version doesn't know is an internal failure.
func StatusOf(c host.Code) int {
	if k, ok := kinds[c]; ok {
		return k.status
	}
	return http.StatusInternalServerError
}

// ExitOf gives a code's exit code.
func ExitOf(c host.Code) int {
	if k, ok := kinds[c]; ok {
		return k.exit
	}
	return ExitRefused
}

// ErrorOf finds the *host.Error in err, or makes the one that tells it. nil for nil.
func ErrorOf(err error) *host.Error {
	if err == nil {
		return nil
	}
	var e *host.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return &host.Error{Code: host.CodeCanceled, Message: err.Error(), Remedy: "run it again", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &host.Error{Code: host.CodeDeadline, Message: err.Error(), Remedy: "give it more time, or look at flash doctor", Err: err}
	}
	return &host.Error{Code: host.CodeInternal, Message: err.Error(), Remedy: "the daemon's log flash.log in its home may say more", Err: err}
}

// CodeOf gives the code of a failure, "" for nil.
func CodeOf(err error) host.Code {
	if err == nil {
		return ""
	}
	return ErrorOf(err).Code
}

// ErrorBody is a failure as JSON.
type ErrorBody struct {
	Error *host.Error `json:"error"`
}

// Error headers are trailers: HTTP wants them on one line, which JSON without indentation is.
const errorTrailer = "Flash-Error"

func writeError(w http.ResponseWriter, err error) {
	e := ErrorOf(err)
	if e.Code == host.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="flash"`)
	}
	writeJSON(w, StatusOf(e.Code), ErrorBody{e})
}

// decodeError reads a failure from an answer's body.
func decodeError(status int, body []byte) error {
	var b ErrorBody
	if err := json.Unmarshal(body, &b); err == nil && b.Error != nil && b.Error.Code != "" {
		return b.Error
	}
	text := string(body)
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return host.Errorf(host.CodeInternal, "is this flash's socket? Try flash doctor", "the daemon answered %d %s: %q", status, http.StatusText(status), text)
}
