package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"flash/cas/bucket"
	"flash/cas/remote"
	"flash/store/offsite"
)

// remotesName is the file of a home that says which remotes it knows: JSON, a list of RemoteSpec.
const remotesName = "remotes.json"

const (
	openPause    = 2 * time.Second  // between two attempts to open a remote that is away, for whom waits for a chunk
	openDeadline = 30 * time.Second // of one attempt
)

var validRemote = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?$`)

// remotes are the ones a home knows.
type remotes struct {
	wiring Remotes // nil: this host has none
	path   string

	mu    sync.Mutex // guards the rest; not held while one is opened
	known map[string]*knownRemote
}

// knownRemote is one of them, opened when it is first needed.
type knownRemote struct {
	wiring Remotes

	opening sync.Mutex // held while it is opened

	mu      sync.Mutex // guards the rest
	spec    RemoteSpec
	secrets RemoteSecrets
	opened  *OpenedRemote
	failed  error // why it isn't opened
	tried   time.Time
	removed bool
	follow  *follower // nil: nothing is replicated there
}

func loadRemotes(home string, wiring Remotes) (*remotes, error) {
	r := &remotes{wiring: wiring, path: filepath.Join(home, remotesName), known: map[string]*knownRemote{}}
	p, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var specs []RemoteSpec
	if err == nil {
		err = json.Unmarshal(p, &specs)
	}
	if err != nil {
		return nil, Errorf(CodeCorrupt, "mend or remove "+r.path+"; nothing else depends on it but lazily pulled VMs", "the list of remotes: %w", err)
	}
	for _, s := range specs {
		r.take(s, RemoteSecrets{})
	}
	return r, nil
}

// take makes a remote known and its chunks readable.
func (r *remotes) take(s RemoteSpec, secrets RemoteSecrets) *knownRemote {
	k := &knownRemote{wiring: r.wiring, spec: s, secrets: secrets}
	r.known[s.Name] = k
	if r.wiring != nil {
		r.wiring.Attach(s.Name, k.packs)
	}
	return k
}

// save writes the list. Precondition: mu is held.
func (r *remotes) save() error {
	specs := []RemoteSpec{}
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		specs = append(specs, r.known[name].now())
	}
	p, err := json.MarshalIndent(specs, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(r.path, append(p, '\n'))
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, p []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(p)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// get finds a remote; "" is the only one there is.
func (r *remotes) get(name string) (*knownRemote, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" && len(r.known) == 1 {
		for _, k := range r.known {
			return k, nil
		}
	}
	if k := r.known[name]; k != nil {
		return k, nil
	}
	if name == "" {
		return nil, Errorf(CodeRemoteNotFound, "name one; flash remote ls lists them, flash remote add makes one known", "%d remotes are known, and none was named", len(r.known))
	}
	return nil, Errorf(CodeRemoteNotFound, "flash remote ls lists them; flash remote add makes one known", "no remote is called %q", name)
}

func (r *remotes) all() []*knownRemote {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.known), func(a, b *knownRemote) int { return cmp.Compare(a.now().Name, b.now().Name) })
}

func (k *knownRemote) now() RemoteSpec {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spec
}

// open gives the opened remote.
func (k *knownRemote) open(ctx context.Context) (*OpenedRemote, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	k.mu.Lock()
	opened, spec, secrets, removed := k.opened, k.spec, k.secrets, k.removed
	k.mu.Unlock()
	if removed {
		return nil, Errorf(CodeRemoteNotFound, "flash remote ls lists them", "remote %s was removed", spec.Name)
	}
	if opened != nil {
		return opened, nil
	}
	opened, err := k.wiring.Open(ctx, spec, secrets, false)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed, k.tried = err, time.Now()
	if err != nil {
		return nil, err
	}
	k.opened = opened
	return opened, nil
}

// packs is what the far tier asks for at every need. One that can't be opened now is tried again later, not at every page.
func (k *knownRemote) packs(ctx context.Context) (*remote.Remote, error) {
	k.mu.Lock()
	opened, failed, tried, name := k.opened, k.failed, k.tried, k.spec.Name
	k.mu.Unlock()
	if opened == nil && failed != nil && time.Since(tried) < openPause {
		return nil, fmt.Errorf("remote %s: %w: %v", name, bucket.ErrUnavailable, failed) // for whoever waits it is away, whatever the reason
	}
	ctx, cancel := context.WithTimeout(ctx, openDeadline)
	defer cancel()
	opened, err := k.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("remote %s: %w: %v", name, bucket.ErrUnavailable, err)
	}
	return opened.Packs, nil
}

// shut lets go of what was opened.
func (k *knownRemote) shut() error {
	k.opening.Lock()
	defer k.opening.Unlock()
	k.mu.Lock()
	opened := k.opened
	k.opened = nil
	k.mu.Unlock()
	if opened == nil {
		return nil
	}
	return opened.Close()
}

// use opens a remote for a verb and explains why it can't.
func (h *Host) use(ctx context.Context, name string) (*knownRemote, *OpenedRemote, error) {
	k, err := h.remotes.get(name)
	if err != nil {
		return nil, nil, err
	}
	opened, err := k.open(ctx)
	if err != nil {
		return nil, nil, h.explainRemote(err, k.now().Name, "")
	}
	return k, opened, nil
}

// Remotes lists the remotes. What is away is asked again.
func (h *Host) Remotes(ctx context.Context) ([]Remote, error) {
	known := h.remotes.all()
	out := make([]Remote, len(known))
	for i, k := range known {
		out[i] = h.remoteView(ctx, k)
	}
	return out, nil
}

// askDeadline bounds what a list of remotes waits for one of them.
const askDeadline = 5 * time.Second

func (h *Host) remoteView(ctx context.Context, k *knownRemote) Remote {
	out := Remote{RemoteSpec: k.now(), State: "ready", Lag: k.lag()}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	opened, err := k.open(ctx)
	if err == nil {
		requests := opened.Requests()
		out.Requests = &requests
	} else {
		err = h.explainRemote(err, out.Name, "")
		out.State, out.Reason = "unreachable", err.Error()
		if isCode(err, CodeRemoteLocked) {
			out.State = "locked"
		}
	}
	return out
}

// AddRemote makes a remote known, and makes it what a remote is where there is nothing yet.
func (h *Host) AddRemote(ctx context.Context, r AddRemoteRequest) (Remote, error) {
	s := r.RemoteSpec
	if !validRemote.MatchString(s.Name) {
		return Remote{}, Errorf(CodeInvalid, "use 1 to 32 of a-z 0-9 _ - with a letter or digit at both ends, as in backup", "%q is not a name for a remote", s.Name)
	}
	if s.CacheGiB < 0 || s.RateMiB < 0 || s.GraceSeconds < 0 {
		return Remote{}, Errorf(CodeInvalid, "give numbers of 0 or more", "a bound of remote %s is negative", s.Name)
	}
	if h.remotes.wiring == nil {
		return Remote{}, Errorf(CodeUnsupported, "use flash serve, which has them", "this host knows no remotes")
	}
	h.remotes.mu.Lock()
	taken := h.remotes.known[s.Name] != nil
	h.remotes.mu.Unlock()
	if taken {
		return Remote{}, Errorf(CodeRemoteExists, "choose another name, or flash remote rm "+s.Name+" first", "a remote is called %q already", s.Name)
	}
	opened, err := h.remotes.wiring.Open(ctx, s, r.RemoteSecrets, true)
	if err != nil {
		return Remote{}, h.explainRemote(err, s.Name, "")
	}
	h.remotes.mu.Lock()
	defer h.remotes.mu.Unlock()
	if h.remotes.known[s.Name] != nil {
		opened.Close()
		return Remote{}, Errorf(CodeRemoteExists, "choose another name", "a remote is called %q already", s.Name)
	}
	s.ID = opened.ID
	k := h.remotes.take(s, r.RemoteSecrets)
	k.opened = opened
	if err := h.remotes.save(); err != nil {
		delete(h.remotes.known, s.Name)
		h.remotes.wiring.Detach(s.Name)
		return Remote{}, also(h.explain(fmt.Errorf("remember remote %s: %w", s.Name, err), ""), k.shut())
	}
	h.follow(k)
	return Remote{RemoteSpec: s, State: "ready"}, nil
}

// ChangeRemote unlocks a remote, or says which VMs follow there.
func (h *Host) ChangeRemote(ctx context.Context, r ChangeRemoteRequest) (Remote, error) {
	k, err := h.remotes.get(r.Name)
	if err != nil {
		return Remote{}, err
	}
	for id := range r.ReplicateVMs {
		if _, err := h.find(id); err != nil {
			return Remote{}, err
		}
	}
	if r.Secrets != nil {
		if err := k.shut(); err != nil {
			h.log.Warn("remote not closed cleanly", "remote", k.now().Name, "cause", err)
		}
		k.mu.Lock()
		k.secrets = *r.Secrets
		k.mu.Unlock()
		if _, err := k.open(ctx); err != nil {
			return Remote{}, h.explainRemote(err, k.now().Name, "")
		}
	}
	if err := h.changeReplication(k, r); err != nil {
		return Remote{}, h.explain(err, "")
	}
	return h.remoteView(ctx, k), nil
}

// RemoveRemote forgets a remote. What is in it stays there. Refused while a VM's pages may still come from it.
func (h *Host) RemoveRemote(ctx context.Context, name string) error {
	k, err := h.remotes.get(name)
	if err != nil {
		return err
	}
	name = k.now().Name
	if err := h.dropTracking(ctx, name); err != nil {
		return err
	}
	if err := h.mayForget(ctx, k); err != nil {
		return err
	}
	k.unfollow()
	h.remotes.mu.Lock()
	delete(h.remotes.known, name)
	err = h.remotes.save()
	if err != nil {
		h.remotes.known[name] = k
	}
	h.remotes.mu.Unlock()
	if err != nil {
		return h.explain(err, "")
	}
	k.mu.Lock()
	k.removed = true
	k.mu.Unlock()
	h.remotes.wiring.Detach(name)
	if err := k.shut(); err != nil {
		h.log.Warn("remote not closed cleanly", "remote", name, "cause", err)
	}
	return nil
}

// ProbeRemote tries on the real bucket what flash relies on.
func (h *Host) ProbeRemote(ctx context.Context, name string) ([]bucket.Check, error) {
	_, opened, err := h.use(ctx, name)
	if err != nil {
		return nil, err
	}
	return bucket.Probe(ctx, opened.Plain), nil
}

// RemoteVMs lists the VMs in a remote.
func (h *Host) RemoteVMs(ctx context.Context, name string) ([]offsite.Ref, error) {
	k, opened, err := h.use(ctx, name)
	if err != nil {
		return nil, err
	}
	refs, err := opened.Offsite.Refs(ctx)
	return refs, h.explainRemote(err, k.now().Name, "")
}

// RemoveRemoteVM takes a VM's history out of a remote. Its packs go with later collections there.
func (h *Host) RemoveRemoteVM(ctx context.Context, name, vm string) error {
	k, opened, err := h.use(ctx, name)
	if err != nil {
		return err
	}
	return h.explainRemote(opened.Offsite.Remove(ctx, vm), k.now().Name, vm)
}
