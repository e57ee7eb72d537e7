package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"flash/store"
	"flash/vmm/host"
)

func (s *Server) gc(w http.ResponseWriter, r *http.Request) error {
	var b host.GCRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	report, err := s.api.GC(r.Context(), b)
	return reply(w, http.StatusOK, report, err)
}

func (s *Server) checkStore(w http.ResponseWriter, r *http.Request) error {
	var b host.CheckRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	report, err := s.api.Check(r.Context(), b)
	return reply(w, http.StatusOK, report, err)
}

func (s *Server) debug(w http.ResponseWriter, r *http.Request) error {
	dump, err := s.api.Debug(r.Context(), host.DebugRequest{What: r.PathValue("what"), Name: r.URL.Query().Get("name")})
	return reply(w, http.StatusOK, dump, err)
}

func (s *Server) removeCheckpoint(w http.ResponseWriter, r *http.Request) error {
	n, err := checkpointNumber("the path's last part", r.PathValue("n"))
	if err != nil {
		return err
	}
	if err := s.api.RemoveCheckpoint(r.Context(), r.PathValue("vm_id"), n); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *Client) GC(ctx context.Context, r host.GCRequest) (report host.GCReport, err error) {
	err = c.call(ctx, "POST", "/v1/host/gc", r, &report)
	return report, err
}

func (c *Client) Check(ctx context.Context, r host.CheckRequest) (report store.CheckReport, err error) {
	err = c.call(ctx, "POST", "/v1/host/check", r, &report)
	return report, err
}

func (c *Client) Debug(ctx context.Context, r host.DebugRequest) (dump host.DebugDump, err error) {
	if r.What == "" {
		r.What = "-" // a path with nothing at its end is another route
	}
	err = c.call(ctx, "GET", "/v1/host/debug/"+url.PathEscape(r.What)+"?"+url.Values{"name": {r.Name}}.Encode(), nil, &dump)
	return dump, err
}

func (c *Client) RemoveCheckpoint(ctx context.Context, id string, number int) error {
	return c.callVM(ctx, "DELETE", id, []string{"checkpoints", strconv.Itoa(number)}, nil, nil, nil)
}
