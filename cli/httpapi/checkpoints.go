package httpapi

import (
	"net/http"

	"flash/vmm/host"
)

func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	cps, err := s.api.History(r.Context(), r.PathValue("vm_id"))
	return replyList(w, http.StatusOK, cps, err)
}

func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	var b checkpointBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	id, err := requestID(r, b.RequestID)
	if err != nil {
		return err
	}
	cp, err := s.api.Checkpoint(r.Context(), host.CheckpointRequest{RequestID: id, ID: r.PathValue("vm_id"), Label: b.Label, Pin: b.Pin})
	return reply(w, http.StatusCreated, cp, err)
}

func (s *Server) pin(w http.ResponseWriter, r *http.Request) error {
	n, err := checkpointNumber("the path's last part", r.PathValue("n"))
	if err != nil {
		return err
	}
	var b pinBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	if b.Pinned == nil {
		return host.Errorf(host.CodeInvalid, `send {"pinned":true} or {"pinned":false}`, "pinned is missing")
	}
	cp, err := s.api.Pin(r.Context(), r.PathValue("vm_id"), n, *b.Pinned)
	return reply(w, http.StatusOK, cp, err)
}

func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	from, err := checkpointNumber("from", q.Get("from"))
	if err != nil {
		return err
	}
	req := host.DiffRequest{ID: r.PathValue("vm_id"), From: from}
	if q.Has("to") {
		to, err := checkpointNumber("to", q.Get("to"))
		if err != nil {
			return err
		}
		req.To = &to
	}
	d, err := s.api.Diff(r.Context(), req)
	return reply(w, http.StatusOK, d, err)
}

func (s *Server) ledger(w http.ResponseWriter, r *http.Request) error {
	entries, err := s.api.Ledger(r.Context(), r.PathValue("vm_id"))
	return replyList(w, http.StatusOK, entries, err)
}
