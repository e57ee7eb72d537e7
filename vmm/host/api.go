package host

import (
	"context"
	"io"
	"time"

	"flash/cas/bucket"
	"flash/store"
	"flash/store/offsite"
	"flash/vmm"
	"flash/vmm/guest"
)

// API is every operation of the host. *Host does them; httpapi.Client does them over a socket. Doors translate to it
// and decide nothing. Every error is or wraps an *Error.
type API interface {
	Create(ctx context.Context, r CreateRequest) (VM, error)
	Fork(ctx context.Context, r ForkRequest) ([]VM, error)
	List(ctx context.Context) ([]VM, error)
	Get(ctx context.Context, id string) (VM, error)
	Rewind(ctx context.Context, r RewindRequest) (RewindResult, error)
	Start(ctx context.Context, id string) (VM, error) // from its newest checkpoint, or its bundle when it has none
	Stop(ctx context.Context, r StopRequest) (VM, error)
	Remove(ctx context.Context, r RemoveRequest) error
	Update(ctx context.Context, r UpdateRequest) (VM, error)

	History(ctx context.Context, id string) ([]Checkpoint, error)
	Checkpoint(ctx context.Context, r CheckpointRequest) (Checkpoint, error)
	Pin(ctx context.Context, id string, number int, pinned bool) (Checkpoint, error)
	Diff(ctx context.Context, r DiffRequest) (Diff, error)
	Ledger(ctx context.Context, id string) ([]store.LedgerEntry, error)

	Exec(ctx context.Context, r ExecRequest, s guest.Streams) (ExecResult, error)
	AttachExec(ctx context.Context, id, exec string, s guest.Streams) (ExecResult, error) // exec "": the newest
	Execs(ctx context.Context, id string) ([]guest.ExecInfo, error)
	CopyIn(ctx context.Context, id, dir string, tar io.Reader) error
	CopyOut(ctx context.Context, id, path string, tar io.Writer) error
	Logs(ctx context.Context, id string, follow bool, w io.Writer) error // the guest's console

	Bundles(ctx context.Context) ([]Bundle, error)
	BuildBundle(ctx context.Context, r BuildRequest, progress func(Progress)) (Bundle, error)
	ImportBundle(ctx context.Context, r ImportRequest, progress func(Progress)) (Bundle, error)
	RemoveBundle(ctx context.Context, name string) error

	RemoveCheckpoint(ctx context.Context, id string, number int) error
	GC(ctx context.Context, r GCRequest) (GCReport, error)
	Check(ctx context.Context, r CheckRequest) (store.CheckReport, error)
	Debug(ctx context.Context, r DebugRequest) (DebugDump, error)

	Remotes(ctx context.Context) ([]Remote, error)
	AddRemote(ctx context.Context, r AddRemoteRequest) (Remote, error)
	ChangeRemote(ctx context.Context, r ChangeRemoteRequest) (Remote, error)
	RemoveRemote(ctx context.Context, name string) error
	ProbeRemote(ctx context.Context, name string) ([]bucket.Check, error)
	RemoteVMs(ctx context.Context, name string) ([]offsite.Ref, error)
	RemoveRemoteVM(ctx context.Context, name, vm string) error
	Push(ctx context.Context, r RemotePushRequest, progress func(Progress)) (offsite.PushReport, error)
	Pull(ctx context.Context, r RemotePullRequest, progress func(Progress)) (PullResult, error)
	TakeOver(ctx context.Context, name, vm string) (offsite.Ref, error)
	RemoteKey(ctx context.Context, r RemoteKeyRequest) (RemoteKeyResult, error)
	CollectRemote(ctx context.Context, name string, apply bool) (offsite.GCReport, error)
	CheckRemote(ctx context.Context, r RemoteCheckRequest, progress func(Progress)) (RemoteCheckReport, error)

	Info(ctx context.Context) (Info, error)
}

// VM is a VM as ps shows it.
type VM struct {
	ID          string           `json:"id"`
	State       string           `json:"state"` // running paused stopped crashed
	Bundle      string           `json:"bundle"`
	VCPUs       int              `json:"vcpus"`
	MemMiB      int              `json:"mem_mib"`
	Checkpoints int              `json:"checkpoints"` // how many there are
	Head        *int             `json:"head"`        // null before the first
	Created     time.Time        `json:"created"`
	EachCommand bool             `json:"checkpoint_each_command"` // run with --checkpoints
	Ports       []vmm.Port       `json:"ports"`
	From        *store.ForkPoint `json:"from,omitempty"`
	Restart     string           `json:"restart"`          // policy: no always
	Reason      string           `json:"reason,omitempty"` // why it is crashed or stopped
	PID         int              `json:"pid,omitempty"`
	Replication []VMLag          `json:"replication,omitempty"` // how far its copies in remotes are behind
	Notice      string           `json:"notice,omitempty"`      // what a caller of rewind, fork or start must know, e.g. dead connections
}

// Checkpoint is one entry of a history.
type Checkpoint struct {
	Number   int              `json:"number"`
	Parent   *int             `json:"parent"`
	Label    string           `json:"label"`
	Created  time.Time        `json:"created"`
	ExitCode *int             `json:"exit_code"`
	Pinned   bool             `json:"pinned"`
	Head     bool             `json:"head"`
	NewBytes int64            `json:"new_bytes"`
	From     *store.ForkPoint `json:"from,omitempty"`
	Timing   *Timing          `json:"timing,omitempty"` // only where the checkpoint was just taken
}

// Timing says where a checkpoint's time went, in microseconds.
type Timing struct {
	PauseMicros  int64 `json:"pause_us"`  // guest-visible: CPUs stopped
	FreezeMicros int64 `json:"freeze_us"` // workload frozen, the pause included
	StoreMicros  int64 `json:"store_us"`  // compare, hash, compress, commit; the guest runs
	Pages        int   `json:"pages"`     // changed, as the tracker saw them
	Blocks       int   `json:"blocks"`
	NewChunks    int   `json:"new_chunks"`
}

// CreateRequest makes a VM and starts it. It answers when the guest's agent has.
type CreateRequest struct {
	RequestID   string     `json:"request_id,omitempty"` // the same id again gives the same answer
	ID          string     `json:"id"`
	Bundle      string     `json:"bundle"`
	VCPUs       int        `json:"vcpus"`   // 0: the bundle's default, 1
	MemMiB      int        `json:"mem_mib"` // 0: the bundle's default, 512
	Checkpoints bool       `json:"checkpoints"`
	Ports       []vmm.Port `json:"ports"`
	Restart     string     `json:"restart,omitempty"` // policy: no always; "": no
}

// ForkRequest makes Count new VMs from a checkpoint.
type ForkRequest struct {
	RequestID  string     `json:"request_id,omitempty"`
	From       string     `json:"from"`
	Checkpoint *int       `json:"checkpoint"` // nil: the present, which is checkpointed first
	Count      int        `json:"count"`      // 0: 1
	IDs        []string   `json:"ids"`        // names; what is missing is made from the parent's: agent-1-fork-1 …
	Ports      []vmm.Port `json:"ports"`
}

// RewindRequest takes a VM back to a checkpoint.
type RewindRequest struct {
	RequestID  string `json:"request_id,omitempty"`
	ID         string `json:"id"`
	Checkpoint int    `json:"checkpoint"`
}

// RewindResult says where the state that was left can be found again.
type RewindResult struct {
	VM    VM          `json:"flashvm"`
	Saved *Checkpoint `json:"saved"` // "before rewind to N"; null when nothing had changed since the head
}

// StopRequest ends the guest. Unless Discard, its present is checkpointed first, so Start goes on exactly there.
type StopRequest struct {
	ID      string `json:"id"`
	Discard bool   `json:"discard"` // don't checkpoint; the newest checkpoint is what Start comes back to
}

// RemoveRequest removes a VM with its history.
type RemoveRequest struct {
	ID    string `json:"id"`
	Force bool   `json:"force"` // also when running, or when checkpoints are pinned
}

// CheckpointRequest takes one now.
type CheckpointRequest struct {
	RequestID string `json:"request_id,omitempty"`
	ID        string `json:"id"`
	Label     string `json:"label"`
	Pin       bool   `json:"pin"`
}

// ExecRequest runs a command in a VM.
type ExecRequest struct {
	RequestID  string            `json:"request_id,omitempty"`
	ID         string            `json:"id"` // the VM
	Command    guest.ExecRequest `json:"command"`
	Checkpoint *bool             `json:"checkpoint"` // nil: as the VM was run; else take one first or don't
}

// ExecResult is how it ended and which checkpoint undoes it. Beside an error, an ExecID says that the command has run, or
// may have.
type ExecResult struct {
	guest.ExitStatus
	ExecID     string      `json:"exec_id"`
	Checkpoint *Checkpoint `json:"checkpoint"`
}

// DiffRequest compares two checkpoints of one VM; To nil means the newest checkpoint.
type DiffRequest struct {
	ID   string `json:"id"`
	From int    `json:"from"`
	To   *int   `json:"to"`
}

// Diff is what changed between two checkpoints.
type Diff struct {
	From        int          `json:"from"`
	To          int          `json:"to"`
	MemoryPages int          `json:"memory_pages"`
	DiskBlocks  int          `json:"disk_blocks"`
	Files       []FileChange `json:"files"`
	Note        string       `json:"note,omitempty"` // why Files can't be told, or is incomplete
}

// FileChange is one file that differs.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added removed modified
	Bytes  int64  `json:"bytes"`  // its size now, or before it was removed
}

// Bundle is a bundle as bundle ls shows it.
type Bundle struct {
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	DiskMiB  int       `json:"disk_mib"`
	NewBytes int64     `json:"new_bytes,omitempty"` // appended to the store when it was built
	Snapshot string    `json:"snapshot"`
	Source   string    `json:"source"` // "build busybox", "import alpine.tar"
}

// BuildRequest builds one of the known bundles.
type BuildRequest struct {
	Kind    string `json:"kind"` // busybox debian
	Name    string `json:"name"` // "": the kind
	DiskMiB int    `json:"disk_mib"`
}

// ImportRequest imports a docker-save archive or an OCI layout that the daemon can read.
type ImportRequest struct {
	Path    string `json:"path"` // absolute
	Name    string `json:"name"` // "": from the file's name
	DiskMiB int    `json:"disk_mib"`
}

// Progress is one step of long work.
type Progress struct {
	Step  string `json:"step"`
	Done  int64  `json:"done"`  // of Total, in Unit
	Total int64  `json:"total"` // 0: not known
	Unit  string `json:"unit"`
}

// Info is what the daemon says of itself.
type Info struct {
	Version      string           `json:"version"`
	PID          int              `json:"pid"`
	Home         string           `json:"home"`
	Capabilities vmm.Capabilities `json:"capabilities"`
	Usage        store.Usage      `json:"usage"`
}
