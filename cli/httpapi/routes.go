package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"flash/vmm/host"
)

// handler answers a request; the error, if nothing has been written yet, is the answer.
type handler func(w http.ResponseWriter, r *http.Request) error

type route struct {
	method, path string
	handle       handler
}

const vmPath = "/v1/host/flashvms/{vm_id}"

func (s *Server) table() []route {
	return append(s.remoteTable(), []route{
		{"GET", "/v1/host/health", s.health},
		{"GET", "/v1/host/info", s.info},
		{"GET", "/metrics", s.metrics},
		{"POST", "/v1/host/shutdown", s.shutDown},
		{"GET", "/v1/host/flashvms", s.list},
		{"POST", "/v1/host/flashvms", s.createOrFork},
		{"GET", vmPath, s.get},
		{"PATCH", vmPath, s.change},
		{"DELETE", vmPath, s.remove},
		{"GET", vmPath + "/checkpoints", s.history},
		{"POST", vmPath + "/checkpoints", s.checkpoint},
		{"PATCH", vmPath + "/checkpoints/{n}", s.pin},
		{"DELETE", vmPath + "/checkpoints/{n}", s.removeCheckpoint},
		{"GET", vmPath + "/diff", s.diff},
		{"GET", vmPath + "/ledger", s.ledger},
		{"GET", vmPath + "/logs", s.logs},
		{"POST", vmPath + "/exec", s.exec},
		{"GET", vmPath + "/execs", s.execs},
		{"POST", vmPath + "/attach", s.attach},
		{"POST", vmPath + "/execs/{exec_id}/attach", s.attach},
		{"GET", vmPath + "/files", s.copyOut},
		{"PUT", vmPath + "/files", s.copyIn},
		{"GET", "/v1/host/bundles", s.bundles},
		{"POST", "/v1/host/bundles", s.addBundle},
		{"DELETE", "/v1/host/bundles/{name}", s.removeBundle},
		{"POST", "/v1/host/gc", s.gc},
		{"POST", "/v1/host/check", s.checkStore},
		{"GET", "/v1/host/debug/{what}", s.debug},
	}...)
}

// routes makes the mux. An unknown path and a wrong method are told like every failure, not as ServeMux would.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range s.table() {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if err := rt.handle(w, r); err != nil {
				e := ErrorOf(err)
				s.log.Debug("request failed", "method", r.Method, "path", r.URL.Path, "code", e.Code, "err", err)
				writeError(w, e)
			}
		})
	}
	for path, ms := range methods {
		slices.Sort(ms)
		allowed := strings.Join(ms, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allowed)
			e := host.Errorf(host.CodeInvalid, "it takes "+allowed, "%s has no %s", r.URL.Path, r.Method)
			writeJSON(w, http.StatusMethodNotAllowed, ErrorBody{e})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		e := host.Errorf(host.CodeInvalid, bodyRemedy, "there is no route %s", r.URL.Path)
		writeJSON(w, http.StatusNotFound, ErrorBody{e})
	})
	return mux
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *Server) info(w http.ResponseWriter, r *http.Request) error {
	info, err := s.api.Info(r.Context())
	return reply(w, http.StatusOK, info, err)
}

func (s *Server) shutDown(w http.ResponseWriter, r *http.Request) error {
	if s.shutdown == nil {
		return host.Errorf(host.CodeUnsupported, "end the process that serves it", "this server can't be shut down by a request")
	}
	writeJSON(w, http.StatusAccepted, map[string]string{"status": "ending"})
	s.shutdown()
	return nil
}

// reply writes v, or returns err for the caller to be told.
func reply(w http.ResponseWriter, status int, v any, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, status, v)
	return nil
}

// replyList is reply for a list, where none is [] and never null.
func replyList[T any](w http.ResponseWriter, status int, list []T, err error) error {
	if list == nil {
		list = []T{}
	}
	return reply(w, status, list, err)
}
