package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"flash/store"
	"flash/vmm/guest"
)

// Exec runs a command in a VM, after a checkpoint labelled with it where the VM was run with --checkpoints.
// A cancelled ctx kills the command with all its processes. The same request id runs once, see runs.
func (h *Host) Exec(ctx context.Context, r ExecRequest, s guest.Streams) (ExecResult, error) {
	v, err := h.find(r.ID)
	if err != nil {
		return ExecResult{}, err
	}
	if len(r.Command.Argv) == 0 || r.Command.Argv[0] == "" {
		return ExecResult{}, Errorf(CodeInvalid, fmt.Sprintf("give one after --, as in flash exec %s -- ls /", v.id), "no command was given")
	}
	named := r.RequestID != "" || r.Command.ID != ""
	if r.Command.ID == "" {
		r.Command.ID = newExecID(r.RequestID)
	}
	if r.Command, err = h.imageDefaults(ctx, v, r.Command); err != nil {
		return ExecResult{}, err
	}
	if !named {
		return h.run(ctx, v, nil, r, s)
	}
	one, first := h.runs.obtain(v.id, r.Command.ID)
	if !first {
		return h.join(ctx, v, one, r, s)
	}
	out, err := h.run(ctx, v, one, r, s)
	h.runs.end(one, out, err)
	return out, err
}

// run takes the checkpoint and runs the command.
func (h *Host) run(ctx context.Context, v *vm, one *run, r ExecRequest, s guest.Streams) (ExecResult, error) {
	out := ExecResult{ExecID: r.Command.ID}
	g, err := h.beforeRun(ctx, v, r, &out)
	if err != nil {
		return neverRan(out), err
	}
	h.runs.start(one, out)
	command := r.Command
	command.KeepOnCancel = true // killing it is up to us, who can tell when the guest doesn't answer
	for {
		out.ExitStatus, err = h.unlessSilent(ctx, v, g, func(ctx context.Context) (guest.ExitStatus, error) {
			return g.client.Exec(ctx, command, s)
		})
		if !isFrozen(err) {
			break
		}
		if g, err = h.untilThawed(ctx, v); err != nil {
			return neverRan(out), err
		}
	}
	if isRefused(err) {
		return neverRan(out), h.explainExec(ctx, g, r, false, err)
	}
	if err != nil {
		return out, h.explainExec(ctx, g, r, false, h.killUnlessKept(ctx, g, r.Command, err))
	}
	record := func() { h.recordExec(ctx, v, r.Command, out) }
	if one != nil {
		one.record.Do(record)
	} else {
		record()
	}
	return out, nil
}

// neverRan is the result of a command that wasn't started: it has no id to attach to.
func neverRan(out ExecResult) ExecResult {
	out.ExecID = ""
	return out
}

// isRefused tells whether the agent didn't start the command, or knows none of that id. That another caller has its
// output is another matter.
func isRefused(err error) bool {
	refusal, ok := refusalOf(err)
	return ok && refusal.Code != guest.CodeTakenOver && refusal.Code != guest.CodeOutputLost
}

// beforeRun takes the checkpoint, if one is wanted, and gives the guest to run in.
func (h *Host) beforeRun(ctx context.Context, v *vm, r ExecRequest, out *ExecResult) (*guestVM, error) {
	unlock, err := h.lock(ctx, v, "exec")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := h.need(v, "exec"); err != nil {
		return nil, err // before the checkpoint, whose word it would be
	}
	want := v.hw.EachCommand
	if r.Checkpoint != nil {
		want = *r.Checkpoint
	}
	if want {
		c, err := h.checkpoint(ctx, v, commandLabel(r.Command.Argv), false)
		if err != nil {
			return nil, err
		}
		out.Checkpoint = &c
	}
	return h.need(v, "exec")
}

// untilThawed waits for somebody else's checkpoint to end. One that failed may have left the workload frozen.
func (h *Host) untilThawed(ctx context.Context, v *vm) (*guestVM, error) {
	unlock, err := h.lock(ctx, v, "exec")
	if err != nil {
		return nil, err
	}
	defer unlock()
	g, err := h.need(v, "exec")
	if err != nil {
		return nil, err
	}
	return g, h.explainGuest(g, h.thaw(ctx, g, h.deadlines.Control))
}

// isFrozen tells whether a command wasn't started because the workload is frozen.
func isFrozen(err error) bool {
	refusal, ok := refusalOf(err)
	return ok && refusal.Code == guest.CodeFrozen
}

// recordExec keeps how a command ended, in the ledger and beside the checkpoint that undoes it. The command has run: that
// this can't be written down is for the log, and no reason to withhold its exit code.
func (h *Host) recordExec(ctx context.Context, v *vm, r guest.ExecRequest, out ExecResult) {
	ctx = context.WithoutCancel(ctx)
	data := map[string]any{"exec": out.ExecID, "argv": r.Argv, "exit_code": out.Code}
	var err error
	if out.Checkpoint != nil {
		data["checkpoint"] = out.Checkpoint.Number
		out.Checkpoint.ExitCode = &out.Code
		if err = h.store.SetExitCode(ctx, v.id, out.Checkpoint.Number, out.Code); errors.Is(err, store.ErrNotFound) {
			err = nil // retention has removed it meanwhile
		}
	}
	if err = also(err, h.store.AppendLedger(ctx, v.id, "exec", data)); err != nil {
		h.log.Error("exec not recorded", "vm", v.id, "exec", out.ExecID, "exit_code", out.Code, "cause", err)
	}
}

// AttachExec goes on with the output of a command; exec "" means the newest.
func (h *Host) AttachExec(ctx context.Context, id, exec string, s guest.Streams) (ExecResult, error) {
	v, err := h.find(id)
	if err != nil {
		return ExecResult{}, err
	}
	g, err := h.need(v, "attach")
	if err != nil {
		return ExecResult{}, err
	}
	if exec == "" {
		known, err := g.client.Execs(ctx)
		if err != nil {
			return ExecResult{}, h.explainGuest(g, err)
		}
		if len(known) == 0 {
			return ExecResult{}, Errorf(CodeExecNotFound, fmt.Sprintf("flash exec %s -- COMMAND runs one", id), "no command has run in %s", id)
		}
		exec = known[len(known)-1].ID
	}
	out := ExecResult{ExecID: exec}
	out.ExitStatus, err = h.unlessSilent(ctx, v, g, func(ctx context.Context) (guest.ExitStatus, error) {
		return g.client.AttachExec(ctx, exec, s)
	})
	if isRefused(err) {
		out = neverRan(out)
	}
	if err != nil {
		return out, h.explainExec(ctx, g, ExecRequest{Command: guest.ExecRequest{ID: exec}}, true, err)
	}
	return out, nil
}

// Execs lists the commands that the guest knows.
func (h *Host) Execs(ctx context.Context, id string) ([]guest.ExecInfo, error) {
	g, err := h.guestOf(id, "execs")
	if err != nil {
		return nil, err
	}
	out, err := g.client.Execs(ctx)
	if err != nil {
		return nil, h.explainGuest(g, err)
	}
	return out, nil
}

func (h *Host) guestOf(id, verb string) (*guestVM, error) {
	v, err := h.find(id)
	if err != nil {
		return nil, err
	}
	return h.need(v, verb)
}

// explainExec says why a command has no exit code.
func (h *Host) explainExec(ctx context.Context, g *guestVM, r ExecRequest, attached bool, err error) error {
	command := r.Command.ID
	if len(r.Command.Argv) > 0 {
		command = r.Command.Argv[0]
	}
	var agent *guest.AgentError
	switch {
	case errors.Is(err, guest.ErrNoExec):
		return Errorf(CodeExecNotFound, "flash attach without an id takes the newest", "no command %s is known in %s", command, g.id)
	case errors.Is(err, guest.ErrOutputLost):
		return Errorf(CodeExecInterrupted, fmt.Sprintf("flash attach %s %s shows what is still kept", g.id, r.Command.ID), "somebody else has had output of %s in %s: %w", command, g.id, err)
	case errors.As(err, &agent) && agent.Code == guest.CodeTakenOver:
		return Errorf(CodeExecInterrupted, fmt.Sprintf("flash attach %s %s takes it back", g.id, r.Command.ID), "somebody else has attached to %s in %s; it goes on", command, g.id)
	case errors.As(err, &agent):
		return refusedExec(g.id, r.Command, agent)
	case errors.Is(err, guest.ErrClosed) && g.closing.Load():
		return Errorf(CodeExecInterrupted, fmt.Sprintf("flash history %s shows the state it was left in", g.id), "%s was rewound, stopped or removed while %s ran; it goes on wherever that state is restored", g.id, command)
	case ctx.Err() != nil && !g.ended() && (attached || r.Command.KeepOnCancel):
		return Errorf(CodeCanceled, fmt.Sprintf("flash attach %s %s shows how it goes on", g.id, r.Command.ID), "nobody waits any more for %s in %s; it goes on", command, g.id)
	case ctx.Err() != nil && !g.ended() && !errors.Is(err, errNotKilled):
		code := CodeCanceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = CodeDeadline
		}
		return Errorf(code, "run it again", "%s in %s was cancelled and killed", command, g.id)
	}
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "exec "+r.Command.ID+": ") {
		err = inner // a human knows the command, not the id it was given
	}
	return h.explainGuest(g, fmt.Errorf("%s in %s: %w", command, g.id, err))
}

// errNotKilled: the guest didn't even answer that a command is to be killed.
var errNotKilled = errors.New("it couldn't be killed either")

// killUnlessKept kills a command that nobody waits for any more, err being why.
func (h *Host) killUnlessKept(ctx context.Context, g *guestVM, r guest.ExecRequest, err error) error {
	var agent *guest.AgentError
	if r.KeepOnCancel || isSilent(err) || errors.As(err, &agent) || errors.Is(err, guest.ErrClosed) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.deadlines.Control)
	defer cancel()
	ctx, stop := untilDone(ctx, g.machine)
	defer stop()
	if kerr := g.client.Kill(ctx, r.ID); kerr != nil && !errors.Is(kerr, guest.ErrNoExec) {
		return fmt.Errorf("%w; %w: %w", err, errNotKilled, kerr)
	}
	return err
}

// commandLabel writes a command as a shell would read it.
func commandLabel(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$&|;<>()*?[]#~`{}") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// validExecID is what guests take as one.
var validExecID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// newExecID gives an id no other exec has; the same request gets the same one, so that it starts once.
func newExecID(request string) string {
	if validExecID.MatchString(request) {
		return request
	}
	if request != "" {
		sum := sha256.Sum256([]byte(request))
		return "r" + hex.EncodeToString(sum[:16])
	}
	b := make([]byte, 8)
	rand.Read(b)
	return "e" + hex.EncodeToString(b)
}
