package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"flash/cas"
	"flash/cas/pack"
)

var (
	// ErrLocked: another process has the folder's store open.
	ErrLocked = errors.New("the chunk store is in use by another process")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the chunk store is closed")
	// ErrWrongKey: the packs' chunks are named with another key than the one given.
	ErrWrongKey = errors.New("the chunks are named with another key")
)

const (
	defaultPackBytes    = 32 << 20
	defaultReserveBytes = 64 << 20
	defaultOpenFiles    = 256
	defaultFlushTables  = 8 // some 130,000 chunks, 10 MB of memory
)

// Config says where the store is and how it behaves.
type Config struct {
	Dir string    // made if absent
	Key *[32]byte // names are keyed with it; nil: plain BLAKE3

	// TargetPackBytes is when a pack is sealed; 0: 32 MiB. A pack is longer by one Put's record at most.
	TargetPackBytes int64
	// ReserveBytes is what Put leaves free on the file system; 0: 64 MiB; negative: nothing.
	ReserveBytes int64
	Workers      int              // goroutines that compress and decode for one call; 0: GOMAXPROCS
	OpenFiles    int              // sealed packs kept open; 0: 256
	Log          *slog.Logger     // nil: none
	FS           FS               // nil: OSFS
	Now          func() time.Time // nil: time.Now
	Rand         io.Reader        // of pack ids; nil: crypto/rand

	inline      bool // maintenance runs at the end of Put: tests that count operations
	skipSync    bool // sabotage: Sync does nothing; set by the test that wants the crash tests red
	flushTables int
}

// Store is the near tier. All methods are safe for concurrent use.
type Store struct {
	fs          FS
	dir         string
	packsDir    string
	indexDir    string
	key         *[32]byte
	keyID       uint32
	targetBytes int64
	reserve     int64
	workers     int
	flushTables int
	inline      bool
	skipSync    bool
	log         *slog.Logger
	now         func() time.Time
	rand        io.Reader

	lock     io.Closer
	gate     gate
	packs    catalogue
	index    index
	handles  handles
	encoders sync.Pool // *pack.Encoder
	decoders sync.Pool // *pack.Decoder
	buffers  sync.Pool // *[]byte for a record or a window
	batches  sync.Pool // *[]byte for a shard of a Put
	counters counters
	sync     syncGroup

	sweepMu  sync.RWMutex          // held for reading while Put and Has refer to chunks, for writing to condemn packs
	touched  map[cas.Hash]struct{} // what was referred to since a sweep began; nil: no sweep. Guarded by sweepMu and touchMu
	touchMu  sync.Mutex            // guards touched among holders of sweepMu for reading
	badMu    sync.Mutex            // guards bad
	bad      map[badPlace]struct{} // records found damaged: not referred to by later Puts
	badCount atomic.Int64          // length of bad

	appendMu sync.Mutex    // serialises appends; held across writes
	appends  atomic.Uint64 // how many there were

	openMu  sync.Mutex  // guards the rest; a leaf
	open    *packFile   // nil: made by the next Put
	table   *table      // of open
	rotated []*packFile // not sealed yet

	maintainMu   sync.Mutex // serialises sealing, index compaction and sweeps
	maintainWork chan struct{}
	maintainDone chan struct{}
}

var _ cas.Store = (*Store)(nil)

// badPlace names a damaged record.
type badPlace struct {
	pack   cas.PackID
	offset uint32
}

// Open opens or creates the store in c.Dir, and recovers what a crash left. ErrLocked, ErrWrongKey.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := newStore(c)
	if err := s.load(ctx); err != nil {
		s.closeFiles()
		return nil, fmt.Errorf("open chunk store %s: %w", c.Dir, err)
	}
	if s.inline {
		close(s.maintainDone)
	} else {
		go s.maintainLoop()
	}
	return s, nil
}

func newStore(c Config) *Store {
	s := &Store{
		fs: c.FS, dir: c.Dir, packsDir: filepath.Join(c.Dir, "packs"), indexDir: filepath.Join(c.Dir, "index"),
		key: c.Key, keyID: cas.KeyID(c.Key), targetBytes: c.TargetPackBytes, reserve: c.ReserveBytes,
		workers: c.Workers, flushTables: c.flushTables, inline: c.inline, skipSync: c.skipSync, log: c.Log, now: c.Now, rand: c.Rand,
		bad: map[badPlace]struct{}{}, maintainWork: make(chan struct{}, 1), maintainDone: make(chan struct{}),
	}
	s.packs.packs = map[cas.PackID]*packFile{}
	if s.fs == nil {
		s.fs = OSFS{}
	}
	if s.targetBytes == 0 {
		s.targetBytes = defaultPackBytes
	}
	s.targetBytes = min(s.targetBytes, 1<<31) // offsets have 32 bits
	if s.reserve == 0 {
		s.reserve = defaultReserveBytes
	}
	if s.workers == 0 {
		s.workers = runtime.GOMAXPROCS(0)
	}
	if s.flushTables == 0 {
		s.flushTables = defaultFlushTables
	}
	if s.handles.limit = c.OpenFiles; s.handles.limit == 0 {
		s.handles.limit = defaultOpenFiles
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	s.encoders.New = func() any { return pack.NewEncoder(pack.S2) }
	s.decoders.New = func() any { return pack.NewDecoder(s.Hasher()) }
	s.buffers.New = func() any { return new([]byte) }
	s.batches.New = s.buffers.New
	return s
}

// Hasher gives a new hasher with this store's key.
func (s *Store) Hasher() cas.Hasher { return cas.NewHasher(s.key) }

// Close waits for running operations, syncs the open pack and releases the folder. Closing twice is harmless.
func (s *Store) Close() error {
	if !s.gate.shutAndWait() {
		return nil
	}
	close(s.maintainWork)
	<-s.maintainDone
	s.sync.wait()
	err := s.syncAll()
	if closeErr := s.closeFiles(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("close chunk store %s: %w", s.dir, err)
	}
	return nil
}

// closeFiles releases all descriptors and the lock.
func (s *Store) closeFiles() error {
	var failed error
	for _, p := range s.packs.all() {
		failed = errors.Join(failed, p.close())
	}
	for _, r := range s.index.runs {
		failed = errors.Join(failed, r.file.Close())
	}
	if s.lock != nil {
		failed = errors.Join(failed, s.lock.Close())
	}
	return failed
}
