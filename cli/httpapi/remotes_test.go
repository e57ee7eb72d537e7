package httpapi

import (
	"context"

	"flash/cas/bucket"
	"flash/store"
	"flash/store/offsite"
	"flash/vmm/host"
)

func (s *scripted) Remotes(context.Context) ([]host.Remote, error) {
	return answer[[]host.Remote](s, nil)
}
func (s *scripted) AddRemote(_ context.Context, r host.AddRemoteRequest) (host.Remote, error) {
	return answer[host.Remote](s, r)
}
func (s *scripted) ChangeRemote(_ context.Context, r host.ChangeRemoteRequest) (host.Remote, error) {
	return answer[host.Remote](s, r)
}
func (s *scripted) RemoveRemote(_ context.Context, name string) error {
	_, err := answer[any](s, name)
	return err
}
func (s *scripted) ProbeRemote(_ context.Context, name string) ([]bucket.Check, error) {
	return answer[[]bucket.Check](s, name)
}
func (s *scripted) RemoteVMs(_ context.Context, name string) ([]offsite.Ref, error) {
	return answer[[]offsite.Ref](s, name)
}
func (s *scripted) RemoveRemoteVM(_ context.Context, name, vm string) error {
	_, err := answer[any](s, []any{name, vm})
	return err
}
func (s *scripted) TakeOver(_ context.Context, name, vm string) (offsite.Ref, error) {
	return answer[offsite.Ref](s, []any{name, vm})
}
func (s *scripted) RemoteKey(_ context.Context, r host.RemoteKeyRequest) (host.RemoteKeyResult, error) {
	return answer[host.RemoteKeyResult](s, r)
}
func (s *scripted) CollectRemote(_ context.Context, name string, apply bool) (offsite.GCReport, error) {
	return answer[offsite.GCReport](s, []any{name, apply})
}
func (s *scripted) Push(_ context.Context, r host.RemotePushRequest, p func(host.Progress)) (offsite.PushReport, error) {
	for _, step := range s.steps {
		p(step)
	}
	return answer[offsite.PushReport](s, r)
}
func (s *scripted) Pull(_ context.Context, r host.RemotePullRequest, p func(host.Progress)) (host.PullResult, error) {
	for _, step := range s.steps {
		p(step)
	}
	return answer[host.PullResult](s, r)
}
func (s *scripted) CheckRemote(_ context.Context, r host.RemoteCheckRequest, p func(host.Progress)) (host.RemoteCheckReport, error) {
	for _, step := range s.steps {
		p(step)
	}
	return answer[host.RemoteCheckReport](s, r)
}

var (
	aSpec    = host.RemoteSpec{Name: "far", ID: "i", URL: "s3://b/p", Endpoint: "http://x", Region: "r", Sealed: true, KeyFile: "/k", CacheGiB: 1.5, RateMiB: 2, ReplicateAll: true, ReplicateVMs: []string{"a"}, GraceSeconds: 3}
	aSecret  = host.RemoteSecrets{AccessKey: "a", SecretKey: "s", SessionToken: "t", Passphrase: "p", Key: []byte("k")}
	aRemote  = host.Remote{RemoteSpec: aSpec, State: "ready", Reason: "w", Requests: &bucket.Stats{Gets: 1}, Lag: []host.VMLag{{VM: "a", Remote: "far", Checkpoints: 2, Since: &when, Error: "e"}}}
	aRef     = offsite.Ref{VM: "a", Host: "h", HostID: "1", Mine: true, Epoch: 2, Seq: 3, Since: when, Pushed: when, Head: 4, Checkpoints: 5, Newest: 6}
	aFinding = store.Finding{Severity: store.Damage, Kind: "pack", Pack: "p", Offset: 1, Reason: "r", Touches: []store.Name{{VM: "a", Number: 1}}}
)

// remoteCalls is calls for what lies beyond this host.
var remoteCalls = map[string]apiCall{
	"Remotes": {nil, []host.Remote{aRemote}, func(ctx context.Context, a host.API) (any, error) { return a.Remotes(ctx) }},
	"AddRemote": {host.AddRemoteRequest{RemoteSpec: aSpec, RemoteSecrets: aSecret}, aRemote, func(ctx context.Context, a host.API) (any, error) {
		return a.AddRemote(ctx, host.AddRemoteRequest{RemoteSpec: aSpec, RemoteSecrets: aSecret})
	}},
	"ChangeRemote": {host.ChangeRemoteRequest{Name: "far", Secrets: &aSecret, ReplicateAll: ptr(false), ReplicateVMs: map[string]bool{"a": true}}, aRemote, func(ctx context.Context, a host.API) (any, error) {
		return a.ChangeRemote(ctx, host.ChangeRemoteRequest{Name: "far", Secrets: &aSecret, ReplicateAll: ptr(false), ReplicateVMs: map[string]bool{"a": true}})
	}},
	"RemoveRemote": {"far", nil, func(ctx context.Context, a host.API) (any, error) { return nil, a.RemoveRemote(ctx, "far") }},
	"ProbeRemote": {"far", []bucket.Check{{Name: "n", Result: bucket.Failed, Evidence: "e", Consequence: "c", Remedy: "r"}}, func(ctx context.Context, a host.API) (any, error) {
		return a.ProbeRemote(ctx, "far")
	}},
	"RemoteVMs":      {"", []offsite.Ref{aRef}, func(ctx context.Context, a host.API) (any, error) { return a.RemoteVMs(ctx, "") }},
	"RemoveRemoteVM": {[]any{"far", "a"}, nil, func(ctx context.Context, a host.API) (any, error) { return nil, a.RemoveRemoteVM(ctx, "far", "a") }},
	"TakeOver":       {[]any{"far", "a"}, aRef, func(ctx context.Context, a host.API) (any, error) { return a.TakeOver(ctx, "far", "a") }},
	"RemoteKey": {host.RemoteKeyRequest{Remote: "far", Next: &aSecret}, host.RemoteKeyResult{Key: []byte("k")}, func(ctx context.Context, a host.API) (any, error) {
		return a.RemoteKey(ctx, host.RemoteKeyRequest{Remote: "far", Next: &aSecret})
	}},
	"CollectRemote": {[]any{"far", true}, offsite.GCReport{Applied: true, Refs: 1, FreedBytes: 2}, func(ctx context.Context, a host.API) (any, error) {
		return a.CollectRemote(ctx, "far", true)
	}},
	"Push": {host.RemotePushRequest{VM: "a", Checkpoint: ptr(3), Remote: "far"}, offsite.PushReport{Ref: aRef, Packs: 1, NewBytes: 2, Took: 3}, func(ctx context.Context, a host.API) (any, error) {
		return a.Push(ctx, host.RemotePushRequest{VM: "a", Checkpoint: ptr(3), Remote: "far"}, nil)
	}},
	"Pull": {host.RemotePullRequest{Remote: "", VM: "a", As: "b", Lazy: true, TakeOver: true}, host.PullResult{PullReport: offsite.PullReport{VM: "b", Packs: 1, NewBytes: 2, Took: 3}, Notice: "n"}, func(ctx context.Context, a host.API) (any, error) {
		return a.Pull(ctx, host.RemotePullRequest{VM: "a", As: "b", Lazy: true, TakeOver: true}, nil)
	}},
	"CheckRemote": {host.RemoteCheckRequest{Remote: "far", Read: 0.5, Heal: true}, host.RemoteCheckReport{CheckReport: offsite.CheckReport{Refs: 1, Findings: []store.Finding{aFinding}, Worst: store.Damage}}, func(ctx context.Context, a host.API) (any, error) {
		return a.CheckRemote(ctx, host.RemoteCheckRequest{Remote: "far", Read: 0.5, Heal: true}, nil)
	}},
}
