// Package offsite keeps VMs' histories in a bucket: push and pull, claims of several hosts, collection there.
package offsite

import (
	"context"
	"io"
	"log/slog"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store"
)

// Packs is what a push asks of the near tier beyond cas.Store, and a pull.
type Packs interface {
	Seal(ctx context.Context) error
	PackOf(h cas.Hash) (cas.PackID, bool) // a sealed pack that has the chunk
	OpenPack(ctx context.Context, id cas.PackID) (*io.SectionReader, error)
	PackEntries(ctx context.Context, id cas.PackID) ([]pack.Entry, error)
	PackHash(id cas.PackID) (contentHash cas.Hash, bytes int64, ok bool)
	ImportPackFrom(ctx context.Context, contentHash cas.Hash, r io.Reader, size int64) error
}

// HostID tells hosts apart in claims: random, kept in the home.
type HostID [16]byte

// Config is what an offsite stands on. Nothing of it is closed by Close.
type Config struct {
	Name     string // of the remote, for messages
	Store    *store.Store
	Packs    Packs
	Bucket   bucket.Bucket
	Remote   *remote.Remote
	Host     HostID
	HostName string
	Grace    time.Duration // a pack is condemned for so long before it is removed; 0: 24 h
	Log      *slog.Logger
	Now      func() time.Time
}

// Offsite is one remote of this host. All methods are safe for concurrent use.
type Offsite struct{}

func Open(ctx context.Context, c Config) (*Offsite, error) { panic("contract") }

// Ref is a VM as the bucket shows it.
type Ref struct {
	VM          string    `json:"flashvm"`
	Host        string    `json:"host"` // who may move it
	HostID      string    `json:"host_id"`
	Mine        bool      `json:"mine"`
	Epoch       uint64    `json:"epoch"` // grows with every change of owner
	Seq         uint64    `json:"seq"`   // grows with every push
	Pushed      time.Time `json:"pushed"`
	Head        int       `json:"head"`
	Checkpoints int       `json:"checkpoints"`
	Newest      int       `json:"newest"`
}

func (o *Offsite) Refs(ctx context.Context) ([]Ref, error)          { panic("contract") }
func (o *Offsite) Ref(ctx context.Context, vm string) (Ref, error) { panic("contract") }

// Progress is told what moves. Total is 0 while it isn't known.
type Progress func(step string, doneBytes, totalBytes int64)

// PushRequest says what is pushed: the VM's history up to and with Checkpoint.
type PushRequest struct {
	VM         string
	Checkpoint *int // nil: all
	Progress   Progress
}

type PushReport struct {
	Ref
	Packs    int           `json:"packs"`     // uploaded now
	NewBytes int64         `json:"new_bytes"` // of them
	Took     time.Duration `json:"took_ns"`
}

// Push uploads what the remote lacks, then moves the ref. ErrNotOwner when another host has claimed the VM.
func (o *Offsite) Push(ctx context.Context, r PushRequest) (PushReport, error) { panic("contract") }

// PullRequest says what is brought here. As names the VM here; "": as there.
type PullRequest struct {
	VM       string
	As       string
	TakeOver bool // this host becomes the owner: the other's pushes are refused from then on. Else As is a copy with no claim
	Lazy     bool // names only; pages and nodes are fetched when they are read. Held in the bucket until the VM is removed here
	Progress Progress
}

type PullReport struct {
	VM       string        `json:"flashvm"`
	Packs    int           `json:"packs"`
	NewBytes int64         `json:"new_bytes"`
	Took     time.Duration `json:"took_ns"`
}

func (o *Offsite) Pull(ctx context.Context, r PullRequest) (PullReport, error) { panic("contract") }

// TakeOver makes this host the owner of a VM that it has, without moving data.
func (o *Offsite) TakeOver(ctx context.Context, vm string) (Ref, error) { panic("contract") }

// Release tells the bucket which lazily pulled snapshots this host still needs; what it held besides is let go.
func (o *Offsite) Release(ctx context.Context) error { panic("contract") }

// Remove takes a VM's ref out of the bucket. Its packs go with the next collections.
func (o *Offsite) Remove(ctx context.Context, vm string) error { panic("contract") }

// GCOptions: without Apply nothing is changed.
type GCOptions struct{ Apply bool }

type GCReport struct {
	Applied        bool  `json:"applied"`
	Refs           int   `json:"refs"`
	Packs          int   `json:"packs"`
	UnreachedPacks int   `json:"unreached_packs"`
	UnreachedBytes int64 `json:"unreached_bytes"`
	Condemned      int   `json:"condemned_packs"` // now
	FreedPacks     int   `json:"freed_packs"`     // condemned earlier, and removed now
	FreedBytes     int64 `json:"freed_bytes"`
}

func (o *Offsite) GC(ctx context.Context, g GCOptions) (GCReport, error) { panic("contract") }

// CheckReport is what a check of the remote found.
type CheckReport struct {
	Refs     int             `json:"refs"`
	Packs    int             `json:"packs"`
	Nodes    int             `json:"nodes"`
	Chunks   int64           `json:"chunks"`
	Read     cas.VerifyStats `json:"read"`
	Findings []store.Finding `json:"findings"`
	Worst    string          `json:"worst"`
}

func (o *Offsite) Check(ctx context.Context, readFraction float64, p Progress) (CheckReport, error) {
	panic("contract")
}

// Heal puts right what one side has damaged and the other has whole: local packs from the bucket, objects from local packs.
func (o *Offsite) Heal(ctx context.Context, p Progress) (cas.RepairStats, error) { panic("contract") }
