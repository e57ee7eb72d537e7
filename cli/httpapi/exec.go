package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// runExec is one call of Exec or AttachExec, with the caller's streams.
type runExec func(ctx context.Context, s guest.Streams) (host.ExecResult, error)

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	var b execBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	id, err := requestID(r, b.RequestID)
	if err != nil {
		return err
	}
	req, err := b.request(r.PathValue("vm_id"), id)
	if err != nil {
		return err
	}
	up, err := upgrades(r)
	switch {
	case err != nil:
		return err
	case up && len(b.Stdin) > 0:
		return host.Errorf(host.CodeInvalid, "send it in frames, with attach_stdin", "an upgraded exec has no stdin in its body")
	case !up && b.AttachStdin:
		return host.Errorf(host.CodeInvalid, `send "stdin", or upgrade to `+Protocol, "attach_stdin needs an upgraded connection")
	}
	run := func(ctx context.Context, st guest.Streams) (host.ExecResult, error) { return s.api.Exec(ctx, req, st) }
	if up {
		return s.upgrade(w, r, b.AttachStdin, run)
	}
	return s.streamLines(w, r, b.Stdin, run)
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	var b attachBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	up, err := upgrades(r)
	if err != nil {
		return err
	}
	if !up && b.AttachStdin {
		return host.Errorf(host.CodeInvalid, "upgrade to "+Protocol, "attach_stdin needs an upgraded connection")
	}
	vm, exec := r.PathValue("vm_id"), r.PathValue("exec_id")
	run := func(ctx context.Context, st guest.Streams) (host.ExecResult, error) {
		return s.api.AttachExec(ctx, vm, exec, st)
	}
	if up {
		return s.upgrade(w, r, b.AttachStdin, run)
	}
	return s.streamLines(w, r, nil, run)
}

func (s *Server) execs(w http.ResponseWriter, r *http.Request) error {
	list, err := s.api.Execs(r.Context(), r.PathValue("vm_id"))
	return replyList(w, http.StatusOK, list, err)
}

// streamLines runs an exec for a plain client. The request's context ends when the client goes away.
func (s *Server) streamLines(w http.ResponseWriter, r *http.Request, stdin []byte, run runExec) error {
	out := newLineWriter(w)
	st := guest.Streams{Stdout: outputLines{out, "stdout"}, Stderr: outputLines{out, "stderr"}}
	if len(stdin) > 0 {
		st.Stdin = bytes.NewReader(stdin)
	}
	res, err := run(r.Context(), st)
	if err != nil {
		return out.end(err, execError{ErrorBody{ErrorOf(err)}, res.ExecID})
	}
	return out.end(nil, EndOf(res))
}

// upgrades says whether the client asks for frames. Another protocol is refused, not ignored.
func upgrades(r *http.Request) (bool, error) {
	asked := false
	for _, v := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			asked = asked || strings.EqualFold(strings.TrimSpace(token), "upgrade")
		}
	}
	if !asked {
		return false, nil
	}
	if p := r.Header.Get("Upgrade"); p != Protocol {
		return false, host.Errorf(host.CodeUnsupported, "use a client of this version", "the client asks for %q, this server speaks %s", p, Protocol)
	}
	return true, nil
}
