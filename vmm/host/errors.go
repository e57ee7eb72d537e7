package host

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the stable name of a failure, the same in every door.
type Code string

const (
	CodeInvalid            Code = "invalid_argument"
	CodeVMNotFound         Code = "vm_not_found"
	CodeVMExists           Code = "vm_exists"
	CodeVMNotRunning       Code = "vm_not_running"
	CodeVMBusy             Code = "vm_busy"
	CodeVMPinned           Code = "vm_pinned"
	CodeVMRunning          Code = "vm_running"
	CodeCheckpointNotFound Code = "checkpoint_not_found"
	CodeBundleNotFound     Code = "bundle_not_found"
	CodeBundleExists       Code = "bundle_exists"
	CodeExecNotFound       Code = "exec_not_found"
	CodeExecFailed         Code = "exec_failed"      // the command could not be started
	CodeExecInterrupted    Code = "exec_interrupted" // its guest was rewound or stopped under it
	CodePathNotFound       Code = "path_not_found"   // of the guest, to copy from or into
	CodeIncompatible       Code = "incompatible_host"
	CodeEngine             Code = "engine_failed"
	CodeNoEngine           Code = "engine_missing"
	CodeGuest              Code = "guest_unresponsive"
	CodeGuestCrashed       Code = "guest_crashed"
	CodeCorrupt            Code = "store_corrupt"
	CodeNothingChecked     Code = "nothing_checked"
	CodeNoSpace            Code = "no_space"
	CodeStoreFull          Code = "store_full" // its own budget is used up, not the disk
	CodeStoreLocked        Code = "store_locked"
	CodeUnsupported        Code = "unsupported"
	CodeCanceled           Code = "canceled"
	CodeDeadline           Code = "deadline_exceeded"
	CodeUnauthorized       Code = "unauthorized"
	CodeDaemon             Code = "daemon_unreachable"
	CodeRemoteNotFound     Code = "remote_not_found"
	CodeRemoteExists       Code = "remote_exists"
	CodeRemoteInUse        Code = "remote_in_use"      // VMs here still read from it
	CodeRemoteLocked       Code = "remote_locked"      // its key isn't known here
	CodeRemoteUnreachable  Code = "remote_unreachable" // nothing is lost; try again
	CodeRemoteRefused      Code = "remote_refused"     // no access, no bucket, not ours, another format
	CodeNotOwner           Code = "not_owner"          // another host has claimed the VM
	CodeInternal           Code = "internal"
)

// Error is a failure as every door tells it: a stable code, what went wrong in a sentence, what to do about it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	Err     error  `json:"-"` // the cause, for logs and errors.Is
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error; a %w among the arguments becomes its cause.
func Errorf(code Code, remedy, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: oneLine(err.Error()), Remedy: oneLine(remedy), Err: errors.Unwrap(err)}
}

// also adds what went wrong while err was made good. Unlike errors.Join it stays a sentence.
func also(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return fmt.Errorf("%w; and then: %w", err, more)
}

// oneLine makes one line of what layers below may have joined.
func oneLine(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}
