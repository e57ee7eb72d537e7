package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	badgeroptions "github.com/dgraph-io/badger/v4/options"
)

const (
	nodeCacheBytes = 64 << 20 // about 8,000 leaves: 4 GiB of images

	memTableBytes  = 8 << 20
	valueLogBytes  = 8 << 20 // only ever holds values above valueThreshold, of which there are none
	valueThreshold = 1 << 20 // the most Badger takes; see maxValueBytes
	blockCache     = 8 << 20
	indexCache     = 8 << 20
)

// Open opens or creates. ErrLocked when another process has it.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", c.Dir, err)
	}
	return s, nil
}

func openStore(ctx context.Context, c Config) (_ *Store, err error) {
	s := &Store{
		dir: c.Dir, chunks: c.Chunks, now: c.Now, log: c.Log, workers: c.Workers,
		nodes: &nodeReader{c.Chunks, newNodeCache(nodeCacheBytes)}, freeBytes: freeBytes,
		txns: map[*Txn]struct{}{}, pins: map[SnapshotID]int{}, turn: make(chan struct{}, 1),
	}
	s.garbage.unknown.Store(true)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.workers <= 0 {
		s.workers = runtime.GOMAXPROCS(0)
	}
	s.scratch.New = func() any { return newScratch(c.Chunks.Hasher()) }
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(c.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.release()
		}
	}()
	if err := s.checkSpace(); err != nil {
		return nil, err
	}
	if err := s.markOpen(ctx, c.Trial); err != nil {
		return nil, err
	}
	if s.db, err = openDatabase(options(c.Dir, c.Log)); err != nil {
		return nil, blame(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeDatabase())
		}
	}()
	if s.witness, err = openWitness(c.Dir, s.db); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.witness.file.Close()
		}
	}()
	if err := s.checkFormat(ctx, c.Anew); err != nil {
		return nil, err
	}
	if err := s.finishDeletes(ctx); err != nil {
		return nil, err
	}
	if err := s.countCheckpoints(ctx); err != nil {
		return nil, err
	}
	if err := s.openNotes(ctx); err != nil {
		return nil, err
	}
	if err := s.loadSettings(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// openDatabase refuses a database with a damaged table, and makes an error of what Badger panics with.
func openDatabase(o badger.Options) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("the database can't be read: %v: %w", p, ErrDatabase)
		}
	}()
	if err := verifyTables(o); err != nil {
		return nil, err
	}
	if err := removeEmptyLogs(o.Dir); err != nil {
		return nil, err
	}
	return badger.Open(o)
}

// options suit few, small, precious values: synced, one version, nothing in value logs, little memory.
func options(dir string, log *slog.Logger) badger.Options {
	o := badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false). // Store.write serialises
		WithNumVersionsToKeep(1).
		WithMemTableSize(memTableBytes).
		WithNumMemtables(2).
		WithNumLevelZeroTables(2).
		WithNumLevelZeroTablesStall(4).
		WithNumCompactors(2).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(valueLogBytes).
		WithVerifyValueChecksum(true).
		WithChecksumVerificationMode(badgeroptions.OnBlockRead). // Badger's default is to trust the disk
		WithBlockCacheSize(blockCache).
		WithIndexCacheSize(indexCache).
		WithMetricsEnabled(false)
	if log == nil {
		return o.WithLogger(nil)
	}
	return o.WithLogger(badgerLog{log.With("part", "badger")})
}

// checkFormat stamps a new database and refuses one of another version, and one that is new though it shouldn't be.
func (s *Store) checkFormat(ctx context.Context, anew bool) error {
	return s.update(ctx, func(tx *badger.Txn) error {
		v, err := get(tx, []byte(formatKey))
		switch {
		case err != nil:
			return err
		case v == nil && isEmpty(tx):
			if m, ok := s.chunks.(packMeter); ok && !anew && m.PackBytes() > 0 {
				return fmt.Errorf("there is none, but the packs have %d KiB: it was lost: %w", m.PackBytes()>>10, ErrDatabase)
			}
			return tx.Set([]byte(formatKey), []byte(formatVersion))
		case string(v) != formatVersion:
			return fmt.Errorf("database format %q, want %q: %w", v, formatVersion, ErrFormat)
		}
		return nil
	})
}

// Close waits for open transactions to end.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.open.Wait()
	s.tryCatalogue(context.Background()) // fails where it is closed
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := errors.Join(s.closeDatabase(), s.witness.file.Close())
	s.lock.release()
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.dir, err)
	}
	return nil
}

// closeDatabase closes it in order. Where that fails the marker stays: the next Open looks twice.
func (s *Store) closeDatabase() error {
	if err := s.checkSpace(); err != nil {
		// Badger would write what it has in memory into a mapped file, and die of SIGBUS. All of it is in its synced log,
		// so it is left as a power cut would leave it, to be released with the process.
		return nil
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	return s.unmark()
}

// badgerLog passes on what Badger says; its news about its own workings are debug messages here.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any)   { l.log.Error(message(f, a)) }
func (l badgerLog) Warningf(f string, a ...any) { l.log.Warn(message(f, a)) }
func (l badgerLog) Infof(f string, a ...any)    { l.log.Debug(message(f, a)) }
func (l badgerLog) Debugf(string, ...any)       {}

func message(f string, a []any) string { return strings.TrimSpace(fmt.Sprintf(f, a...)) }
