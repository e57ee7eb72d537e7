package remote

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

const (
	packPrefix      = "packs/"
	cataloguePrefix = "catalog/"
	catalogueSuffix = ".cat"

	defaultCacheBytes = 4 << 30
	// DefaultInFlight is how many requests run at once unless Config says otherwise.
	DefaultInFlight = 32
)

func packKey(contentHash cas.Hash) string { return packPrefix + pack.FileName(contentHash) }
func catalogueKey(contentHash cas.Hash) string {
	return cataloguePrefix + contentHash.String() + catalogueSuffix
}

// Config says which bucket and how it is read.
type Config struct {
	Bucket     bucket.Bucket
	CacheDir   string       // windows of packs that were fetched, and catalogues; made if absent; "": nothing is cached
	CacheBytes int64        // the most the windows take; 0: 4 GiB
	InFlight   int          // requests at once; 0: 32
	Key        *[32]byte    // of the chunks' names, as in local.Config
	Log        *slog.Logger // nil: none
}

// Remote is the packs of one bucket. All methods are safe for concurrent use.
type Remote struct {
	bucket   bucket.Bucket
	key      *[32]byte
	keyID    uint32
	inFlight int
	log      *slog.Logger

	index    index
	cache    cache
	flights  flights
	requests chan struct{} // has room for inFlight
	decoders sync.Pool     // *pack.Decoder
	counters counters

	refreshMu sync.Mutex // serialises reading the catalogue
	rounds    roundCount
}

// PackSource is a sealed pack that may be uploaded.
type PackSource struct {
	ID          cas.PackID
	ContentHash cas.Hash // names the object
	Bytes       int64
	Reader      io.ReaderAt
	Entries     []pack.Entry // ascending by hash; nil: read from the pack's footer
}

// Progress is told of bytes moved, of total ones. It is called from one goroutine at a time.
type Progress func(done, total int64)

// Open prepares a remote and asks the bucket for nothing, so that it also opens while the bucket can't be reached. What
// catalogues the cache folder has are known at once, and serve reads; Has trusts the bucket only, and so the first Refresh.
func Open(ctx context.Context, c Config) (*Remote, error) {
	r := &Remote{bucket: c.Bucket, key: c.Key, keyID: cas.KeyID(c.Key), inFlight: c.InFlight, log: c.Log, index: newIndex()}
	if r.inFlight <= 0 {
		r.inFlight = DefaultInFlight
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.requests = make(chan struct{}, r.inFlight)
	r.flights.running = map[windowKey]*flight{}
	r.decoders.New = func() any { return pack.NewDecoder(cas.NewHasher(r.key)) }
	if err := r.cache.open(c.CacheDir, c.CacheBytes, r.log); err != nil {
		return nil, fmt.Errorf("open the cache of %s: %w", r.bucket.Location(), err)
	}
	if err := r.loadCached(ctx); err != nil {
		return nil, fmt.Errorf("open the cache of %s: %w", r.bucket.Location(), err)
	}
	return r, nil
}

// Close releases what Open took. There is no work in the background: every request belongs to a call.
func (r *Remote) Close() error { return nil }

// Location names the bucket for people.
func (r *Remote) Location() string { return r.bucket.Location() }

// request waits until another request may be in flight.
func (r *Remote) request(ctx context.Context) (done func(), err error) {
	select {
	case r.requests <- struct{}{}:
		return func() { <-r.requests }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Has tells which chunks the catalogue lists, as of the last Refresh of this process; nothing before the first. It asks
// nobody and never fails.
func (r *Remote) Has(hs []cas.Hash) []bool {
	present := make([]bool, len(hs))
	if r.rounds.completed() == 0 {
		return present
	}
	var places [8]place
	for i, h := range hs {
		present[i] = len(r.index.locate(places[:0], h)) > 0
	}
	return present
}

// PacksOf lists the packs that have the chunk, as of the last Refresh, newest first.
func (r *Remote) PacksOf(h cas.Hash) []cas.PackID {
	var places [8]place
	var ids []cas.PackID
	for _, p := range r.index.locate(places[:0], h) {
		ids = append(ids, p.object.id)
	}
	return ids
}

// Packs lists the packs the catalogue names, as of the last Refresh, oldest first. Reader reads ranges of the object, a
// request each; Entries is nil. Two of one id are possible: the near tier's repair makes a smaller pack of a damaged one.
func (r *Remote) Packs() []PackSource {
	objects := r.index.all()
	packs := make([]PackSource, len(objects))
	for i, o := range objects {
		packs[i] = PackSource{ID: o.id, ContentHash: o.hash, Bytes: o.bytes, Reader: &objectReader{context.Background(), r, o.key(), o.bytes}}
	}
	return packs
}
