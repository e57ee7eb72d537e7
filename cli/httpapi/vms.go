package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"flash/vmm/host"
)

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	vms, err := s.api.List(r.Context())
	return replyList(w, http.StatusOK, vms, err)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	vm, err := s.api.Get(r.Context(), r.PathValue("vm_id"))
	return reply(w, http.StatusOK, vm, err)
}

func (s *Server) createOrFork(w http.ResponseWriter, r *http.Request) error {
	var body json.RawMessage
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	var is struct {
		From json.RawMessage `json:"from"`
	}
	if err := json.Unmarshal(body, &is); err == nil && is.From != nil {
		return s.fork(w, r, body)
	}
	var c host.CreateRequest
	if err := decodeStrict(body, &c); err != nil {
		return err
	}
	var err error
	if c.RequestID, err = requestID(r, c.RequestID); err != nil {
		return err
	}
	vm, err := s.api.Create(r.Context(), c)
	return reply(w, http.StatusCreated, vm, err)
}

func (s *Server) fork(w http.ResponseWriter, r *http.Request, body []byte) error {
	var b forkBody
	if err := decodeStrict(body, &b); err != nil {
		return err
	}
	if b.From == nil || b.From.VM == "" {
		return host.Errorf(host.CodeInvalid, `"from" is {"flashvm":"agent-1","checkpoint":3}`, "the fork's from.flashvm is missing")
	}
	id, err := requestID(r, b.RequestID)
	if err != nil {
		return err
	}
	vms, err := s.api.Fork(r.Context(), host.ForkRequest{
		RequestID: id, From: b.From.VM, Checkpoint: b.From.Checkpoint, Count: b.Count, IDs: b.IDs, Ports: b.Ports,
	})
	return replyList(w, http.StatusCreated, vms, err)
}

func (s *Server) change(w http.ResponseWriter, r *http.Request) error {
	var b changeBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	vm := r.PathValue("vm_id")
	reqID, err := requestID(r, b.RequestID)
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return host.Errorf(host.CodeInvalid, `send {"checkpoint":3}, {"state":"stopped"}, {"state":"running"} or {"restart":"always"}`, format, args...)
	}
	asked := 0
	for _, is := range []bool{b.Checkpoint != nil, b.State != "", b.Restart != ""} {
		if is {
			asked++
		}
	}
	switch {
	case asked != 1:
		return refuse("a change needs exactly one of checkpoint, state and restart")
	case b.Discard && b.State != "stopped":
		return refuse("discard goes with the state stopped only")
	case b.Restart != "":
		v, err := s.api.Update(r.Context(), host.UpdateRequest{ID: vm, Restart: b.Restart})
		return reply(w, http.StatusOK, v, err)
	case b.Checkpoint != nil:
		res, err := s.api.Rewind(r.Context(), host.RewindRequest{RequestID: reqID, ID: vm, Checkpoint: *b.Checkpoint})
		return reply(w, http.StatusOK, res, err)
	case b.State == "stopped":
		v, err := s.api.Stop(r.Context(), host.StopRequest{ID: vm, Discard: b.Discard})
		return reply(w, http.StatusOK, v, err)
	case b.State == "running":
		v, err := s.api.Start(r.Context(), vm)
		return reply(w, http.StatusOK, v, err)
	}
	return refuse("the state %q can't be asked for", b.State)
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	if err := s.api.Remove(r.Context(), host.RemoveRequest{ID: r.PathValue("vm_id"), Force: force}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// queryBool reads a flag of the query; absent is false, present needs a value.
func queryBool(r *http.Request, name string) (bool, error) {
	q := r.URL.Query()
	if !q.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, host.Errorf(host.CodeInvalid, "say true or false", "%s is %q", name, q.Get(name))
	}
	return v, nil
}
