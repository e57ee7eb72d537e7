package httpapi

import (
	"net/http"

	"flash/vmm/host"
)

func (s *Server) bundles(w http.ResponseWriter, r *http.Request) error {
	list, err := s.api.Bundles(r.Context())
	return replyList(w, http.StatusOK, list, err)
}

func (s *Server) addBundle(w http.ResponseWriter, r *http.Request) error {
	var b bundleBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	out := newLineWriter(w)
	progress := func(p host.Progress) { out.write(bundleLine{Progress: &p}) }
	var made host.Bundle
	var err error
	switch {
	case (b.Build != nil) == (b.Import != nil):
		return host.Errorf(host.CodeInvalid, `send {"build":{"kind":"busybox"}} or {"import":{"path":"/…"}}`, "a bundle needs exactly one of build and import")
	case b.Build != nil:
		made, err = s.api.BuildBundle(r.Context(), *b.Build, progress)
	default:
		made, err = s.api.ImportBundle(r.Context(), *b.Import, progress)
	}
	if err != nil {
		return out.end(err, bundleLine{Error: ErrorOf(err)})
	}
	return out.end(nil, bundleLine{Bundle: &made})
}

func (s *Server) removeBundle(w http.ResponseWriter, r *http.Request) error {
	if err := s.api.RemoveBundle(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
