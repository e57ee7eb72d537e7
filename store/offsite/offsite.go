package offsite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store"
)

// Packs is what is asked of the near tier alone; *local.Store is one.
type Packs interface {
	store.Inspected // Get, GetMany and Has, of what is near

	Hasher() cas.Hasher
	Seal(ctx context.Context) error
	PackOf(h cas.Hash) (cas.PackID, bool) // a sealed pack that has the chunk
	OpenPack(ctx context.Context, id cas.PackID) (*io.SectionReader, error)
	PackEntries(ctx context.Context, id cas.PackID) ([]pack.Entry, error)
	PackHash(id cas.PackID) (contentHash cas.Hash, bytes int64, ok bool)
	ImportPackFrom(ctx context.Context, contentHash cas.Hash, r io.Reader, size int64) error
}

// Config is what an offsite stands on. Nothing of it is closed.
type Config struct {
	Name     string // of the remote, for messages
	Store    *store.Store
	Packs    Packs
	Bucket   bucket.Bucket
	Remote   *remote.Remote
	Host     HostID
	HostName string
	Grace    time.Duration // a pack is condemned for so long before it is removed; 0: 24 h; negative: not at all
	Log      *slog.Logger
	Now      func() time.Time
}

const (
	defaultGrace = 24 * time.Hour
	// leaseTime: a lease or a collection that hasn't changed for so long, by who watches, is dead.
	leaseTime = 15 * time.Minute
	// maxTries bounds how often something is done again because what it relied on has moved.
	maxTries = 8
)

// Offsite is one remote of this host. All methods are safe for concurrent use.
type Offsite struct {
	c        Config
	wait     func(ctx context.Context, d time.Duration) error
	random   func(p []byte)
	complete completeSet
	watched  watch
	turns    turns // of VMs: one push or pull at a time

	holdMu   sync.RWMutex // held for reading while a pull puts its hold, for writing while Release removes some
	holdsPut int          // by pulls. Guarded by mu

	mu      sync.Mutex           // guards the rest; a leaf
	pulling map[string]int       // names, here, whose holds are in use
	pushed  map[string]pushedRef // by VM: what the last push or look found in the bucket
	sets    map[string]cas.Hash  // by VM: of the working sets that were put last
}

// Open asks nothing of the bucket yet.
func Open(ctx context.Context, c Config) (*Offsite, error) {
	if c.Host == (HostID{}) || len(c.HostName) > maxHostName {
		return nil, fmt.Errorf("open remote %s: a host with the id %s and a name of %d bytes", c.Name, c.Host, len(c.HostName))
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Offsite{c: c, wait: sleep, random: randomBytes, pulling: map[string]int{}, pushed: map[string]pushedRef{}, sets: map[string]cas.Hash{}}, nil
}

// Progress is told what moves. Total is 0 while it isn't known.
type Progress func(step string, doneBytes, totalBytes int64)

func (p Progress) tell(step string, done, total int64) {
	if p != nil {
		p(step, done, total)
	}
}

// now is a time that 64 bits of nanoseconds and JSON hold.
func (o *Offsite) now() time.Time { return o.c.Now().UTC().Round(0) }

// errAgain: what was relied on has moved meanwhile. It never leaves the package.
var errAgain = errors.New("it has moved meanwhile")

// again runs f until it doesn't ask to be run again.
func again(ctx context.Context, f func() error) error {
	var err error
	for range maxTries {
		if err = f(); !errors.Is(err, errAgain) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%w, %d times: %w", ErrMoved, maxTries, err)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
