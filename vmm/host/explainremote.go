package host

import (
	"errors"
	"fmt"

	"flash/cas/bucket"
	"flash/store"
	"flash/store/offsite"
)

// ErrLocked is what a Remotes.Open's error is when the secret it was given, or none, doesn't open an encrypted remote.
var ErrLocked = errors.New("the remote is locked")

// explainRemote turns what a remote said into what a user can act on. nil for nil.
func (h *Host) explainRemote(err error, name, vm string) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	say := func(code Code, remedy string) error {
		return &Error{Code: code, Message: oneLine(fmt.Sprintf("remote %s: %v", name, err)), Remedy: remedy, Err: err}
	}
	switch {
	case errors.Is(err, ErrLocked):
		return say(CodeRemoteLocked, fmt.Sprintf("flash remote unlock %s asks for the passphrase; --key-file opens it with a key", name))
	case errors.Is(err, offsite.ErrNotOwner):
		return say(CodeNotOwner, fmt.Sprintf("fork it, or take it over: flash resume --take-over --remote %s %s", name, vm))
	case errors.Is(err, offsite.ErrNoRef):
		return say(CodeVMNotFound, fmt.Sprintf("flash remote ls %s lists the VMs there", name))
	case errors.Is(err, store.ErrExists):
		return say(CodeVMExists, "give it another name with --as, or remove the one that is here")
	case errors.Is(err, bucket.ErrNoBucket):
		return say(CodeRemoteRefused, "make the bucket, or mend the URL")
	case errors.Is(err, bucket.ErrDenied):
		return say(CodeRemoteRefused, "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or the AWS files, the region and this host's clock; flash remote unlock gives new ones to the daemon")
	case errors.Is(err, bucket.ErrUnavailable):
		return say(CodeRemoteUnreachable, "look at the endpoint and the network, and try again; nothing was lost, and what is there already isn't sent again")
	case errors.Is(err, bucket.ErrIntegrity):
		return say(CodeCorrupt, fmt.Sprintf("flash check %s names what is damaged there", name))
	case errors.Is(err, bucket.ErrUnsupported):
		return say(CodeRemoteRefused, "use a server that has it, or a newer flash")
	case errors.Is(err, bucket.ErrNotFound):
		return say(CodeCorrupt, fmt.Sprintf("flash check %s says what is missing there", name))
	}
	return explain(fmt.Errorf("remote %s: %w", name, err), h.cfg.Home, vm, unknown)
}
