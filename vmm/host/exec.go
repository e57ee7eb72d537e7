package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"flash/store"
	"flash/vmm/guest"
)

// Exec runs a command in a VM, after a checkpoint labelled with it where the VM was run with --checkpoints.
// A cancelled ctx kills the command with all its processes.
func (h *Host) Exec(ctx context.Context, r ExecRequest, s guest.Streams) (ExecResult, error) {
	v, err := h.find(r.ID)
	if err != nil {
		return ExecResult{}, err
	}
	if len(r.Command.Argv) == 0 || r.Command.Argv[0] == "" {
		return ExecResult{}, Errorf(CodeInvalid, fmt.Sprintf("give one after --, as in flash exec %s -- ls /", v.id), "no command was given")
	}
	if r.Command.ID == "" {
		r.Command.ID = newExecID(r.RequestID)
	}
	out := ExecResult{ExecID: r.Command.ID}
	if r.Command, err = h.imageDefaults(ctx, v, r.Command); err != nil {
		return out, err
	}
	unlock, err := v.lock(ctx, "exec")
	if err != nil {
		return out, err
	}
	want := v.hw.EachCommand
	if r.Checkpoint != nil {
		want = *r.Checkpoint
	}
	if want {
		c, err := h.checkpoint(ctx, v, commandLabel(r.Command.Argv), false)
		if err != nil {
			unlock()
			return out, err
		}
		out.Checkpoint = &c
	}
	g, err := v.need("exec")
	unlock()
	if err != nil {
		return out, err
	}
	for {
		out.ExitStatus, err = g.client.Exec(ctx, r.Command, s)
		if !isFrozen(err) {
			break
		}
		// Somebody else's checkpoint came between; once the VM is ours it has ended.
		unlock, err := v.lock(ctx, "exec")
		if err != nil {
			return out, err
		}
		g, err = v.need("exec")
		unlock()
		if err != nil {
			return out, err
		}
	}
	if err != nil {
		return out, h.explainExec(ctx, g, r.Command.Argv[0], err)
	}
	return out, h.recordExec(ctx, v, r.Command, out)
}

// isFrozen tells whether a command wasn't started because the workload is frozen.
func isFrozen(err error) bool {
	var agent *guest.AgentError
	return errors.As(err, &agent) && agent.Code == guest.CodeFrozen
}

// recordExec keeps how a command ended, in the ledger and beside the checkpoint that undoes it.
func (h *Host) recordExec(ctx context.Context, v *vm, r guest.ExecRequest, out ExecResult) error {
	data := map[string]any{"exec": out.ExecID, "argv": r.Argv, "exit_code": out.Code}
	if out.Checkpoint != nil {
		data["checkpoint"] = out.Checkpoint.Number
		if err := h.store.SetExitCode(ctx, v.id, out.Checkpoint.Number, out.Code); err != nil && !errors.Is(err, store.ErrNotFound) { // retention may have removed it
			return h.explain(err, v.id)
		}
		out.Checkpoint.ExitCode = &out.Code
	}
	if err := h.store.AppendLedger(ctx, v.id, "exec", data); err != nil {
		return h.explain(err, v.id)
	}
	return nil
}

// AttachExec goes on with the output of a command; exec "" means the newest.
func (h *Host) AttachExec(ctx context.Context, id, exec string, s guest.Streams) (ExecResult, error) {
	g, err := h.guestOf(id, "attach")
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
	out.ExitStatus, err = g.client.AttachExec(ctx, exec, s)
	if err != nil {
		return out, h.explainExec(ctx, g, exec, err)
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
	return v.need(verb)
}

// explainExec says why a command has no exit code.
func (h *Host) explainExec(ctx context.Context, g *guestVM, command string, err error) error {
	var agent *guest.AgentError
	switch {
	case errors.Is(err, guest.ErrNoExec):
		return Errorf(CodeExecNotFound, "flash attach without an id takes the newest", "no command %s is known in %s", command, g.id)
	case errors.As(err, &agent):
		return Errorf(CodeExecFailed, "check the command, its folder and its user inside the VM", "%s didn't start in %s: %w", command, g.id, err)
	case ctx.Err() != nil:
		return Errorf(CodeCanceled, "run it again", "%s in %s was cancelled and killed", command, g.id)
	case errors.Is(err, guest.ErrClosed) && g.closing.Load():
		return Errorf(CodeExecInterrupted, fmt.Sprintf("flash history %s shows the state it was left in", g.id), "%s was rewound or stopped while %s ran; it goes on wherever that state is restored", g.id, command)
	}
	return h.explainGuest(g, fmt.Errorf("exec in %s: %w", g.id, err))
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

// newExecID gives an id no other exec has; the same request gets the same one, so that it starts once.
func newExecID(request string) string {
	if request != "" {
		return request
	}
	b := make([]byte, 8)
	rand.Read(b)
	return "e" + hex.EncodeToString(b)
}
