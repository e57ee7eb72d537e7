package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
	"flash/vmm"
	"flash/vmm/bundle"
	"flash/vmm/guest"
)

// isCode tells whether err is a failure of that kind.
func isCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// Explain turns a kind of failure into what a user of a home can act on. One that is an *Error already stays as it is.
func Explain(err error, home string) error { return explain(err, home, "VM", unknown) }

func (h *Host) explain(err error, id string) error { return explain(err, h.cfg.Home, id, unknown) }

// explainEngine explains what an engine said, which has reasons of its own.
func (h *Host) explainEngine(err error, id string) error {
	return explain(err, h.cfg.Home, id, Error{Code: CodeEngine, Remedy: "flash doctor says what this host lacks; the daemon's log says more"})
}

// unknown is the kind of what has no other.
var unknown = Error{Code: CodeInternal, Remedy: "this is a bug or a broken host; the daemon's log says more"}

func explain(err error, home, id string, otherwise Error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	say := func(code Code, remedy string) error {
		return &Error{Code: code, Message: oneLine(err.Error()), Remedy: remedy, Err: err}
	}
	switch {
	case errors.Is(err, store.ErrBudget):
		return say(CodeStoreFull, budgetRemedy)
	case errors.Is(err, cas.ErrNoSpace), errors.Is(err, syscall.ENOSPC):
		return say(CodeNoSpace, "free space on the disk of "+home+"; nothing was lost and the VM runs on")
	case errors.Is(err, store.ErrDatabase):
		return say(CodeCorrupt, "nothing was removed; flash debug rebuild makes it again from the packs, or put a backup of "+filepath.Join(home, "meta")+" in its place")
	case errors.Is(err, cas.ErrUnavailable), errors.Is(err, bucket.ErrUnavailable):
		return say(CodeRemoteUnreachable, "look at the network, or flash remote ls, which says what is wrong with it; nothing was lost, and VMs that wait for their pages go on by themselves")
	case errors.Is(err, cas.ErrCorrupt), errors.Is(err, cas.ErrNotFound):
		return say(CodeCorrupt, "rewind to another checkpoint; flash doctor says more")
	case errors.Is(err, store.ErrRefMoved):
		return say(CodeVMBusy, "try again")
	case errors.Is(err, store.ErrNotFound):
		return say(CodeCorrupt, "flash doctor says more")
	case errors.Is(err, store.ErrLocked):
		return say(CodeStoreLocked, "stop the other flash serve, or give another --home")
	case errors.Is(err, vmm.ErrIncompatible):
		return say(CodeIncompatible, "restore it on a host like the one it was taken on")
	case errors.Is(err, vmm.ErrUnsupported):
		return say(CodeUnsupported, "flash doctor says what this host lacks")
	case errors.Is(err, vmm.ErrGone):
		return say(CodeGuestCrashed, crashRemedy(id))
	case errors.Is(err, context.Canceled):
		return say(CodeCanceled, "run it again")
	case errors.Is(err, context.DeadlineExceeded):
		return say(CodeDeadline, "try again; flash doctor says how the host is")
	}
	return say(otherwise.Code, otherwise.Remedy)
}

// budgetRemedy goes from what costs nothing to what costs most.
const budgetRemedy = "flash gc --apply frees what nothing reaches, flash gc --keep-last 50 --apply thins histories, flash rm removes a VM, flash gc --budget 40G raises the budget; nothing was lost and the VM runs on"

func crashRemedy(id string) string {
	return fmt.Sprintf("flash logs %s shows its console; flash start %s brings it back from its newest checkpoint", id, id)
}

// explainGuest explains a failure of a running guest: what ended, or doesn't answer, is said first.
func (h *Host) explainGuest(g *guestVM, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if g.closing.Load() {
		return &Error{Code: CodeExecInterrupted, Err: err, Message: fmt.Sprintf("%s was rewound, stopped or removed meanwhile: %s", g.id, oneLine(err.Error())), Remedy: "try again when it runs"}
	}
	if errors.Is(err, guest.ErrClosed) && g.machine != nil && !g.ended() {
		g.awaitEnd()
	}
	if g.ended() {
		s := g.endStatus()
		return &Error{Code: CodeGuestCrashed, Err: err,
			Message: oneLine(fmt.Sprintf("%s has ended: %s", g.id, s.Reason)), Remedy: crashRemedy(g.id)}
	}
	var agent *guest.AgentError
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, guest.ErrClosed) || errors.As(err, &agent) {
		message := oneLine(err.Error())
		if h.diskIsFull() {
			return &Error{Code: CodeNoSpace, Err: err, Message: fmt.Sprintf("%s stands still, for the disk of %s is full and so is its own: %s", g.id, h.cfg.Home, message),
				Remedy: "free space on the disk of " + h.cfg.Home + "; the VM goes on by itself then"}
		}
		if line := lastLine(h.consolePath(g.id)); line != "" {
			message += "; the console's last line is: " + line
		}
		return &Error{Code: CodeGuest, Err: err, Message: message, Remedy: fmt.Sprintf("flash logs %s shows its console; flash stop --discard %s and flash start %s go back to its newest checkpoint", g.id, g.id, g.id)}
	}
	return h.explainEngine(err, g.id)
}

// explainBundle explains a failed build or import.
func (h *Host) explainBundle(name string, err error) error {
	var known *Error
	if errors.As(err, &known) || errors.Is(err, cas.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, context.Canceled) {
		return h.explain(fmt.Errorf("bundle %s: %w", name, err), "")
	}
	out := &Error{Code: CodeInvalid, Message: oneLine(err.Error()), Remedy: "mend what the message names and run it again; nothing was stored under that name", Err: err}
	switch {
	case errors.Is(err, bundle.ErrNoSpace):
		out.Code, out.Remedy = CodeNoSpace, "free space on the disk of "+h.cfg.Home
	case errors.Is(err, bundle.ErrMissingTool):
		out.Code, out.Remedy = CodeUnsupported, "install what the message names and run it again"
	case errors.Is(err, bundle.ErrDownload):
		out.Code = CodeUnsupported
		out.Remedy = fmt.Sprintf("let apt reach a mirror, or put the .deb files that the message names into %s", filepath.Join(h.cfg.Home, "cache"))
	case errors.Is(err, bundle.ErrUnsupported):
		out.Code, out.Remedy = CodeUnsupported, "flash doctor says what this host lacks"
	}
	return out
}

// requestRoom is what the largest request of a guest's disk takes: QEMU merges them, up to NBD's 32 MiB.
const requestRoom = 32 << 20

// diskIsFull finds out by taking room: a guest whose disk request can't be served is stopped until it can. Less room than one
// request may take is none.
func (h *Host) diskIsFull() bool {
	f, err := os.CreateTemp(filepath.Join(h.cfg.Home, "scratch"), "room-")
	if err != nil {
		return errors.Is(err, syscall.ENOSPC)
	}
	defer os.Remove(f.Name())
	return errors.Is(errors.Join(takeRoom(f, requestRoom), f.Close()), syscall.ENOSPC)
}

// writeRoom takes room by writing. What it writes is dropped again before it gets to the medium.
func writeRoom(f *os.File, bytes int) error {
	some := make([]byte, 1<<20)
	for written := 0; written < bytes; written += len(some) {
		if _, err := f.Write(some); err != nil {
			return err
		}
	}
	return nil
}
