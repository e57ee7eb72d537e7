package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"flash/cas/bucket"
	"flash/store/offsite"
	"flash/vmm/host"
)

const remotePath = "/v1/host/remotes/{name}"

func (s *Server) remoteTable() []route {
	return []route{
		{"GET", "/v1/host/remotes", s.remotes},
		{"POST", "/v1/host/remotes", s.addRemote},
		{"PATCH", remotePath, s.changeRemote},
		{"DELETE", remotePath, s.removeRemote},
		{"POST", remotePath + "/probe", s.probeRemote},
		{"GET", remotePath + "/flashvms", s.remoteVMs},
		{"DELETE", remotePath + "/flashvms/{vm_id}", s.removeRemoteVM},
		{"POST", remotePath + "/flashvms/{vm_id}/take_over", s.takeOver},
		{"POST", remotePath + "/push", s.push},
		{"POST", remotePath + "/pull", s.pull},
		{"POST", remotePath + "/gc", s.gcRemote},
		{"POST", remotePath + "/key", s.remoteKey},
		{"POST", remotePath + "/check", s.checkRemote},
	}
}

// onlyRemote stands for the one remote there is, in a path that must have a name.
const onlyRemote = "-"

func remoteName(r *http.Request) string {
	if name := r.PathValue("name"); name != onlyRemote {
		return name
	}
	return ""
}

// remoteChange is the body of PATCH remotes/{name}.
type remoteChange struct {
	Secrets      *host.RemoteSecrets `json:"secrets,omitempty"`
	ReplicateAll *bool               `json:"replicate_all,omitempty"`
	Replicate    map[string]bool     `json:"replicate,omitempty"`
}

func (s *Server) remotes(w http.ResponseWriter, r *http.Request) error {
	list, err := s.api.Remotes(r.Context())
	return replyList(w, http.StatusOK, list, err)
}

func (s *Server) addRemote(w http.ResponseWriter, r *http.Request) error {
	var b host.AddRemoteRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	made, err := s.api.AddRemote(r.Context(), b)
	return reply(w, http.StatusCreated, made, err)
}

func (s *Server) changeRemote(w http.ResponseWriter, r *http.Request) error {
	var b remoteChange
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	changed, err := s.api.ChangeRemote(r.Context(), host.ChangeRemoteRequest{Name: remoteName(r), Secrets: b.Secrets, ReplicateAll: b.ReplicateAll, ReplicateVMs: b.Replicate})
	return reply(w, http.StatusOK, changed, err)
}

func (s *Server) removeRemote(w http.ResponseWriter, r *http.Request) error {
	if err := s.api.RemoveRemote(r.Context(), remoteName(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) probeRemote(w http.ResponseWriter, r *http.Request) error {
	checks, err := s.api.ProbeRemote(r.Context(), remoteName(r))
	return replyList(w, http.StatusOK, checks, err)
}

func (s *Server) remoteVMs(w http.ResponseWriter, r *http.Request) error {
	refs, err := s.api.RemoteVMs(r.Context(), remoteName(r))
	return replyList(w, http.StatusOK, refs, err)
}

func (s *Server) removeRemoteVM(w http.ResponseWriter, r *http.Request) error {
	if err := s.api.RemoveRemoteVM(r.Context(), remoteName(r), r.PathValue("vm_id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) takeOver(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.api.TakeOver(r.Context(), remoteName(r), r.PathValue("vm_id"))
	return reply(w, http.StatusOK, ref, err)
}

func (s *Server) gcRemote(w http.ResponseWriter, r *http.Request) error {
	var b offsite.GCOptions
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	report, err := s.api.CollectRemote(r.Context(), remoteName(r), b.Apply)
	return reply(w, http.StatusOK, report, err)
}

func (s *Server) push(w http.ResponseWriter, r *http.Request) error {
	var b host.RemotePushRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	b.Remote = remoteName(r)
	return longWork(w, func(progress func(host.Progress)) (offsite.PushReport, error) {
		return s.api.Push(r.Context(), b, progress)
	})
}

func (s *Server) pull(w http.ResponseWriter, r *http.Request) error {
	var b host.RemotePullRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	b.Remote = remoteName(r)
	return longWork(w, func(progress func(host.Progress)) (host.PullResult, error) {
		return s.api.Pull(r.Context(), b, progress)
	})
}

func (s *Server) checkRemote(w http.ResponseWriter, r *http.Request) error {
	var b host.RemoteCheckRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	b.Remote = remoteName(r)
	return longWork(w, func(progress func(host.Progress)) (host.RemoteCheckReport, error) {
		return s.api.CheckRemote(r.Context(), b, progress)
	})
}

// workLine is one x-ndjson line of long work: exactly one of its fields.
type workLine[T any] struct {
	Progress *host.Progress `json:"progress,omitempty"`
	Result   *T             `json:"result,omitempty"`
	Error    *host.Error    `json:"error,omitempty"`
}

// longWork answers with lines of progress, then the result.
func longWork[T any](w http.ResponseWriter, work func(progress func(host.Progress)) (T, error)) error {
	out := newLineWriter(w)
	result, err := work(func(p host.Progress) { out.write(workLine[T]{Progress: &p}) })
	if err != nil {
		return out.end(err, workLine[T]{Error: ErrorOf(err)})
	}
	return out.end(nil, workLine[T]{Result: &result})
}

// askWork is longWork's other end.
func askWork[T any](ctx context.Context, c *Client, path string, body any, progress func(host.Progress)) (T, error) {
	return readWork(ctx, c, path, body, maxAnswerBytes, progress, func(l workLine[T]) (*host.Progress, *host.Error, *T) {
		return l.Progress, l.Error, l.Result
	})
}

func remoteURL(name, rest string) string {
	if name == "" {
		name = onlyRemote
	}
	return "/v1/host/remotes/" + url.PathEscape(name) + rest
}

func (c *Client) Remotes(ctx context.Context) (list []host.Remote, err error) {
	err = c.call(ctx, "GET", "/v1/host/remotes", nil, &list)
	return list, err
}

func (c *Client) AddRemote(ctx context.Context, r host.AddRemoteRequest) (made host.Remote, err error) {
	err = c.call(ctx, "POST", "/v1/host/remotes", r, &made)
	return made, err
}

func (c *Client) ChangeRemote(ctx context.Context, r host.ChangeRemoteRequest) (changed host.Remote, err error) {
	err = c.call(ctx, "PATCH", remoteURL(r.Name, ""), remoteChange{r.Secrets, r.ReplicateAll, r.ReplicateVMs}, &changed)
	return changed, err
}

func (c *Client) RemoveRemote(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", remoteURL(name, ""), nil, nil)
}

func (c *Client) ProbeRemote(ctx context.Context, name string) (checks []bucket.Check, err error) {
	err = c.call(ctx, "POST", remoteURL(name, "/probe"), nil, &checks)
	return checks, err
}

func (c *Client) RemoteVMs(ctx context.Context, name string) (refs []offsite.Ref, err error) {
	err = c.call(ctx, "GET", remoteURL(name, "/flashvms"), nil, &refs)
	return refs, err
}

func (c *Client) RemoveRemoteVM(ctx context.Context, name, vm string) error {
	return c.call(ctx, "DELETE", remoteURL(name, "/flashvms/"+url.PathEscape(vm)), nil, nil)
}

func (c *Client) TakeOver(ctx context.Context, name, vm string) (ref offsite.Ref, err error) {
	err = c.call(ctx, "POST", remoteURL(name, "/flashvms/"+url.PathEscape(vm)+"/take_over"), nil, &ref)
	return ref, err
}

func (c *Client) CollectRemote(ctx context.Context, name string, apply bool) (report offsite.GCReport, err error) {
	err = c.call(ctx, "POST", remoteURL(name, "/gc"), offsite.GCOptions{Apply: apply}, &report)
	return report, err
}

func (c *Client) Push(ctx context.Context, r host.RemotePushRequest, progress func(host.Progress)) (offsite.PushReport, error) {
	return askWork[offsite.PushReport](ctx, c, remoteURL(r.Remote, "/push"), r, progress)
}

func (c *Client) Pull(ctx context.Context, r host.RemotePullRequest, progress func(host.Progress)) (host.PullResult, error) {
	return askWork[host.PullResult](ctx, c, remoteURL(r.Remote, "/pull"), r, progress)
}

func (c *Client) CheckRemote(ctx context.Context, r host.RemoteCheckRequest, progress func(host.Progress)) (host.RemoteCheckReport, error) {
	return askWork[host.RemoteCheckReport](ctx, c, remoteURL(r.Remote, "/check"), r, progress)
}

func (s *Server) remoteKey(w http.ResponseWriter, r *http.Request) error {
	var b host.RemoteKeyRequest
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	b.Remote = remoteName(r)
	result, err := s.api.RemoteKey(r.Context(), b)
	return reply(w, http.StatusOK, result, err)
}

func (c *Client) RemoteKey(ctx context.Context, r host.RemoteKeyRequest) (result host.RemoteKeyResult, err error) {
	err = c.call(ctx, "POST", remoteURL(r.Remote, "/key"), r, &result)
	return result, err
}
