package host

import (
	"errors"
	"fmt"

	"flash/vmm/guest"
)

// refusalOf finds the agent's word in err; ids of execs, which nobody who typed a command knows, are not in it.
func refusalOf(err error) (*guest.AgentError, bool) {
	var agent *guest.AgentError
	return agent, errors.As(err, &agent)
}

// refusedExec tells why the agent didn't start a command.
func refusedExec(id string, r guest.ExecRequest, refusal *guest.AgentError) *Error {
	command := r.ID
	if len(r.Argv) > 0 {
		command = r.Argv[0]
	}
	switch refusal.Code {
	case guest.CodeNoCommand:
		return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s: no such command in %s", command, id)),
			Remedy: "check its spelling, or give its path inside the VM"}
	case guest.CodeNotExecutable:
		return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s: not an executable file in %s: %s", command, id, refusal.Message)),
			Remedy: "make it executable, or run what reads it, as in sh " + oneLine(command)}
	case guest.CodePermission:
		return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s: permission denied in %s: %s", command, id, refusal.Message)),
			Remedy: "run it as another user, or change its permissions"}
	case guest.CodeNoUser:
		return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s: no such user in %s", r.User, id)),
			Remedy: "give a name of the VM's /etc/passwd, or a number"}
	case guest.CodeNoDir:
		return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s: no such folder in %s", r.Cwd, id)),
			Remedy: "make it in the VM first, or give another working folder"}
	case guest.CodeInvalid:
		return &Error{Code: CodeInvalid, Err: refusal, Message: oneLine(fmt.Sprintf("%s can't be run in %s: %s", command, id, refusal.Message)),
			Remedy: "mend what the message names"}
	}
	return &Error{Code: CodeExecFailed, Err: refusal, Message: oneLine(fmt.Sprintf("%s didn't start in %s: %s", command, id, refusal.Message)),
		Remedy: "check the command, its folder and its user inside the VM"}
}

// refusedCopy tells why the agent didn't copy.
func refusedCopy(id, path string, refusal *guest.AgentError) *Error {
	switch refusal.Code {
	case guest.CodeNotFound:
		return &Error{Code: CodePathNotFound, Err: refusal, Message: oneLine(fmt.Sprintf("%s has no %s", id, path)),
			Remedy: fmt.Sprintf("flash exec %s -- ls shows what there is", id)}
	case guest.CodeNoDir:
		return &Error{Code: CodePathNotFound, Err: refusal, Message: oneLine(fmt.Sprintf("%s has no folder %s", id, path)),
			Remedy: oneLine(fmt.Sprintf("flash exec %s -- mkdir -p %s makes it", id, path))}
	}
	return &Error{Code: CodeInvalid, Err: refusal, Message: oneLine(fmt.Sprintf("copy at %s:%s: %s", id, path, refusal.Message)),
		Remedy: "check the path inside the VM, and that there is room"}
}
