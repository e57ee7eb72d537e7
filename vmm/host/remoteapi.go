package host

import (
	"context"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/remote"
	"flash/store/offsite"
)

// RemoteSpec is what a home remembers of a remote. It holds no secret.
type RemoteSpec struct {
	Name     string `json:"name"`
	ID       string `json:"id,omitempty"` // of what was there when it was added; another one is refused
	URL      string `json:"url"`          // s3://bucket/prefix or file:///path
	Endpoint string `json:"endpoint,omitempty"`
	Region   string `json:"region,omitempty"`
	Sealed   bool   `json:"encrypted"`
	KeyFile  string `json:"key_file,omitempty"` // whose key opens an encrypted one

	CacheGiB     float64  `json:"cache_gib,omitempty"`     // of what is fetched; 0: 4
	RateMiB      float64  `json:"rate_mib,omitempty"`      // a second, up and down; 0: no bound
	ReplicateAll bool     `json:"replicate_all,omitempty"` // every VM of this host follows there
	ReplicateVMs []string `json:"replicate,omitempty"`     // these do
	GraceSeconds int64    `json:"grace_seconds,omitempty"` // how long a pack nobody needs waits for its removal; 0: 24 h
}

// RemoteSecrets open a remote. They stay in memory, and are never part of an answer.
type RemoteSecrets struct {
	AccessKey    string `json:"access_key,omitempty"`
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
	Passphrase   string `json:"passphrase,omitempty"`
	Key          []byte `json:"key,omitempty"` // a key file's text
}

// OpenedRemote is a remote in use.
type OpenedRemote struct {
	Bucket  bucket.Bucket // as flash uses it
	Plain   bucket.Bucket // as the server has it
	Packs   *remote.Remote
	Offsite *offsite.Offsite
	ID      string     // of the remote, as its marker says
	Keys    RemoteKeys // of an encrypted one
	Close   func() error

	Requests func() bucket.Stats // that went to the server
}

// RemoteKeys changes what opens an encrypted remote.
type RemoteKeys interface {
	// Export gives the data key as a key file's text: it opens everything there, for ever.
	Export(ctx context.Context) ([]byte, error)
	// Rotate replaces the secret in use by another. What is stored stays as it is.
	Rotate(ctx context.Context, next RemoteSecrets) error
}

// Remotes is what a host asks of those who know buckets and tiers: the command's wiring.
type Remotes interface {
	// Open opens a remote, which create makes first where there is none.
	Open(ctx context.Context, s RemoteSpec, secrets RemoteSecrets, create bool) (*OpenedRemote, error)
	// Attach lets chunks that aren't here be read from what open gives, which is called at every need until it succeeds.
	Attach(name string, open func(ctx context.Context) (*remote.Remote, error))
	Detach(name string)
}

// Remote is a remote as remote ls shows it.
type Remote struct {
	RemoteSpec
	State    string        `json:"state"` // ready, unreachable, locked
	Reason   string        `json:"reason,omitempty"`
	Requests *bucket.Stats `json:"requests,omitempty"` // since it was opened
	Lag      []VMLag       `json:"lag,omitempty"`      // of VMs that follow there
}

// VMLag says how far a VM's copy in a remote is behind.
type VMLag struct {
	VM          string     `json:"flashvm"`
	Remote      string     `json:"remote"`
	Checkpoints int        `json:"checkpoints"`     // not there yet
	Since       *time.Time `json:"since,omitempty"` // the oldest of them
	Error       string     `json:"error,omitempty"` // what the last attempt ended with
}

// AddRemoteRequest names a remote.
type AddRemoteRequest struct {
	RemoteSpec
	RemoteSecrets
}

// ChangeRemoteRequest changes what is set.
type ChangeRemoteRequest struct {
	Name         string
	Secrets      *RemoteSecrets // unlocks it, until the daemon ends
	ReplicateAll *bool
	ReplicateVMs map[string]bool // on and off
}

// RemotePushRequest pushes a VM's history; Remote "" is the only one there is.
type RemotePushRequest struct {
	VM         string `json:"flashvm"`
	Checkpoint *int   `json:"checkpoint,omitempty"` // the last that goes; nil: all
	Remote     string `json:"-"`
}

// RemotePullRequest brings a VM here.
type RemotePullRequest struct {
	Remote   string `json:"-"`
	VM       string `json:"flashvm"`
	As       string `json:"as,omitempty"` // "": as there
	Lazy     bool   `json:"lazy,omitempty"`
	TakeOver bool   `json:"take_over,omitempty"`
}

// PullResult is what a pull has brought.
type PullResult struct {
	offsite.PullReport
	Notice string `json:"notice,omitempty"`
}

// RemoteCheckRequest says how much of a remote is read.
type RemoteCheckRequest struct {
	Remote string  `json:"-"`
	Read   float64 `json:"read"`
	Heal   bool    `json:"heal,omitempty"` // damaged packs here from there, and there from here
}

// RemoteCheckReport is what a check of a remote found, and healed.
type RemoteCheckReport struct {
	offsite.CheckReport
	Healed *cas.RepairStats `json:"healed,omitempty"`
}
