package guest

import (
	"errors"
	"fmt"
)

// Kinds of failure a caller acts on.
var (
	// ErrClosed says that the session is over: by Close, or because the channel ended or brought nonsense.
	ErrClosed = errors.New("the session with the guest is closed")
	// ErrOutputLost says that bytes of a stream are gone for good.
	ErrOutputLost = errors.New("output was lost")
	// ErrNoExec says that the agent knows no exec of this id.
	ErrNoExec = errors.New("the guest knows no such exec")
)

// ErrProtocol says that host and agent speak different versions.
type ErrProtocol struct{ Theirs, Ours int }

func (e ErrProtocol) Error() string {
	return fmt.Sprintf("the guest's agent speaks protocol %d, this host speaks %d", e.Theirs, e.Ours)
}

// Codes of an AgentError.
const (
	CodeInvalid       = "invalid"           // the request makes no sense
	CodeNoExec        = "exec_not_found"    // is ErrNoExec
	CodeOutputLost    = "output_lost"       // is ErrOutputLost
	CodeTakenOver     = "taken_over"        // another caller has attached to the exec
	CodeNoCommand     = "command_not_found" // the command could not be started
	CodeNotExecutable = "not_executable"
	CodePermission    = "permission_denied"
	CodeNoUser        = "no_such_user"
	CodeNoDir         = "no_such_dir"
	CodeNotFound      = "not_found" // a path to copy
	CodeFrozen        = "frozen"    // the workload is frozen and nobody asked to thaw it
	CodeProtocol      = "protocol"  // of another version
	CodeStale         = "stale_generation"
	CodeCanceled      = "canceled"
	CodeFailed        = "failed" // anything else
)

// AgentError is a failure inside the guest. When it comes from Exec the command never ran.
type AgentError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *AgentError) Error() string { return e.Message }

// Is makes the codes that are kinds match them.
func (e *AgentError) Is(target error) bool {
	return target == ErrNoExec && e.Code == CodeNoExec || target == ErrOutputLost && e.Code == CodeOutputLost
}

// agentError makes any error one that can travel.
func agentError(err error) *AgentError {
	var e *AgentError
	if errors.As(err, &e) {
		return &AgentError{Code: e.Code, Message: err.Error()}
	}
	return &AgentError{Code: CodeFailed, Message: err.Error()}
}

func outputLost(from int64, base uint64) error {
	return &AgentError{Code: CodeOutputLost, Message: fmt.Sprintf("output from byte %d on was asked for, and the guest keeps it only from byte %d on", from, base)}
}
