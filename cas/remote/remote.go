// Package remote is the far tier: the near tier's packs as objects of a bucket, and how a host learns what is in them.
package remote

import (
	"context"
	"io"
	"log/slog"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

// Config says which bucket and how it is read.
type Config struct {
	Bucket     bucket.Bucket
	CacheDir   string       // windows of packs that were fetched; made if absent; "": nothing is cached
	CacheBytes int64        // the most the windows take; 0: 4 GiB
	InFlight   int          // requests at once; 0: 16
	Key        *[32]byte    // of the chunks' names, as in local.Config
	Log        *slog.Logger // nil: none
	Now        func() time.Time
}

// Remote is the packs of one bucket. All methods are safe for concurrent use.
type Remote struct{}

// PackSource is a sealed pack that may be uploaded.
type PackSource struct {
	ID          cas.PackID
	ContentHash cas.Hash // names the object
	Bytes       int64
	Reader      io.ReaderAt
	Entries     []pack.Entry // ascending by hash
}

// UploadStats says what an upload moved.
type UploadStats struct {
	Packs, NewPacks int
	NewBytes        int64
}

// Progress is told of bytes moved, of total ones.
type Progress func(done, total int64)

// Open reads nothing yet but the catalogue's list; Refresh reads the catalogue.
func Open(ctx context.Context, c Config) (*Remote, error) { panic("contract") }

// Close ends the background work.
func (r *Remote) Close() error { panic("contract") }

// Refresh reads the catalogue objects that weren't read yet, and forgets packs that no catalogue names any more.
func (r *Remote) Refresh(ctx context.Context) error { panic("contract") }

// Has tells which chunks the catalogue lists, as of the last Refresh. It asks nobody and never fails.
func (r *Remote) Has(hs []cas.Hash) []bool { panic("contract") }

// Packs lists the packs the catalogue names, as of the last Refresh.
func (r *Remote) Packs() []PackSource { panic("contract") } // Reader reads ranges of the object; Entries may be nil

// Get reads one chunk, through the cache, with the neighbours in its window. A miss refreshes the catalogue once.
// ErrNotFound, *cas.CorruptError, bucket.ErrUnavailable.
func (r *Remote) Get(ctx context.Context, ref cas.Ref, dst []byte) ([]byte, error) { panic("contract") }

// GetMany reads many with as few, long and parallel requests as it can; as cas.Store's.
func (r *Remote) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	panic("contract")
}

// Upload puts the absent ones among packs, then one catalogue object that names them: a pack is in the catalogue only when
// it is there. Called again after any failure it moves only what is still absent.
func (r *Remote) Upload(ctx context.Context, packs []PackSource, p Progress) (UploadStats, error) {
	panic("contract")
}

// Verify reads a fraction of the packs' bytes and checks them; report is called from one goroutine.
func (r *Remote) Verify(ctx context.Context, fraction float64, report func(cas.Damage)) (cas.VerifyStats, error) {
	panic("contract")
}

// Drop takes packs out of the catalogue, and then removes their objects. The caller has made sure that nothing needs them.
func (r *Remote) Drop(ctx context.Context, ids []cas.PackID) (freedBytes int64, err error) {
	panic("contract")
}
