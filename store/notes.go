package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// Notes tell in the packs what Badger tells of names, for when Badger's files are lost: see store/manifest for their
// format, catalogue.go for how they are summed up, and Rebuild for their use.
//
// A note is put and synced before the transaction it tells of, which names it: so it is a root of gc until a catalogue
// that covers it has taken its place. What is committed is always noted; what is noted may never have been committed.
// Names of one VM change one at a time, under nameLocks, for a note says which number a checkpoint gets.

// noteSequences is how far apart the sequence numbers of two sessions begin: notes that were put and never named must
// not have the numbers of later ones.
const noteSequences = 1 << 32

// noteBook gives sequence numbers, and knows the notes that are on their way.
type noteBook struct {
	store manifest.StoreID

	mu    sync.Mutex // guards the rest
	last  uint64     // sequence number that was given
	since int        // notes named since the newest catalogue
	open  map[uint64]*note
}

// note is one on its way. Begun, it is put, then named in a transaction, then ended.
type note struct {
	s        *Store
	sequence uint64
	hash     cas.Hash
	newBytes int64
	chunks   []cas.Hash // roots until the end; guarded by noteBook.mu
}

func (s *Store) beginNote() *note {
	b := &s.notes
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	n := &note{s: s, sequence: b.last}
	b.open[n.sequence] = n
	return n
}

// end is to be called always; a second call is harmless.
func (n *note) end() {
	n.s.notes.mu.Lock()
	defer n.s.notes.mu.Unlock()
	delete(n.s.notes.open, n.sequence)
}

// put stores chunks of the note, which are roots from before they are stored.
func (n *note) put(ctx context.Context, parts ...[]byte) ([]cas.Hash, error) {
	hasher := n.s.chunks.Hasher()
	var chunks []cas.Chunk
	var hashes []cas.Hash
	for _, p := range parts {
		h := hasher.Sum(p)
		hashes = append(hashes, h)
		chunks = append(chunks, cas.Chunk{Hash: h, Kind: cas.KindNote, Data: p})
	}
	n.s.notes.mu.Lock()
	n.chunks = append(n.chunks, hashes...)
	n.s.notes.mu.Unlock()
	stats, err := n.s.chunks.Put(ctx, chunks, nil)
	n.newBytes += stats.NewBytes
	if err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	return hashes, nil
}

// write puts what the note tells. It isn't durable yet.
func (n *note) write(ctx context.Context, m manifest.Note) error {
	p, err := n.fill(&m).Append(nil)
	if err != nil {
		return err
	}
	hashes, err := n.put(ctx, p)
	if err == nil {
		n.hash = hashes[0]
	}
	return err
}

func (n *note) fill(m *manifest.Note) *manifest.Note {
	m.Sequence, m.Written, m.Store = n.sequence, n.s.now().UTC().Round(0), n.s.notes.store
	return m
}

// name makes the note a root with the transaction.
func (n *note) name(tx *badger.Txn) error {
	if n.hash.IsZero() {
		return nil // it couldn't be written, and its writer went on without
	}
	return tx.Set(noteKey(n.sequence), n.hash[:])
}

// named counts the note after its transaction.
func (n *note) named() {
	n.s.notes.mu.Lock()
	defer n.s.notes.mu.Unlock()
	n.s.notes.since++
}

// writeDurably writes and syncs.
func (n *note) writeDurably(ctx context.Context, m manifest.Note) error {
	if err := n.write(ctx, m); err != nil {
		return err
	}
	if err := n.s.chunks.Sync(ctx); err != nil {
		return fmt.Errorf("note: sync chunks: %w", err)
	}
	return nil
}

// tryWrite is for removals: on a full disk they must work, and one without a note is only undone by Rebuild.
func (n *note) tryWrite(ctx context.Context, m manifest.Note) {
	if err := n.writeDurably(ctx, m); err != nil {
		n.hash = cas.Hash{}
		n.s.log.Warn("a removal isn't noted in the packs", "err", err)
	}
}

// covered is the sequence number up to which no note is on its way.
func (b *noteBook) covered() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	covered := b.last
	for sequence := range b.open {
		covered = min(covered, sequence-1)
	}
	return covered
}

// addRoots adds what is on its way.
func (b *noteBook) addRoots(roots *rootSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.open {
		roots.plain = append(roots.plain, n.chunks...)
	}
}

// noteRoots adds what Badger names.
func noteRoots(tx *badger.Txn, roots *rootSet) error {
	err := scan(tx, []byte(notePrefix), func(key, value []byte) error {
		if len(value) != len(cas.Hash{}) {
			return fmt.Errorf("record %q: %w", key, ErrFormat)
		}
		roots.plain = append(roots.plain, cas.Hash(value))
		return nil
	})
	if err != nil {
		return err
	}
	c, err := getCatalogue(tx)
	if err != nil {
		return err
	}
	roots.plain = append(roots.plain, c.chunks...)
	return nil
}

// openNotes makes the book of a database, and, where it is new to notes, the first catalogue.
func (s *Store) openNotes(ctx context.Context) error {
	b := &s.notes
	b.open = map[uint64]*note{}
	err := s.update(ctx, func(tx *badger.Txn) error {
		id, err := get(tx, []byte(storeIDKey))
		if err != nil {
			return err
		}
		if len(id) != len(b.store) {
			id = make([]byte, len(b.store))
			rand.Read(id)
			if err := tx.Set([]byte(storeIDKey), id); err != nil {
				return err
			}
		}
		copy(b.store[:], id)
		base, err := get(tx, []byte(noteBaseKey))
		if err != nil {
			return err
		}
		if len(base) == 8 {
			b.last = binary.LittleEndian.Uint64(base)
		}
		b.last += noteSequences
		b.since = len(keysWith(tx, []byte(notePrefix), -1))
		return tx.Set([]byte(noteBaseKey), binary.LittleEndian.AppendUint64(nil, b.last))
	})
	if err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	var never bool
	err = s.view(ctx, func(tx *badger.Txn) error {
		c, err := getCatalogue(tx)
		never = len(c.chunks) == 0 && b.since == 0
		return err
	})
	if err == nil && never {
		s.tryCatalogue(ctx)
	}
	return err
}

// nameLocks are locks by name.
type nameLocks struct {
	mu   sync.Mutex // guards the rest
	held map[string]*nameLock
}

type nameLock struct {
	mu    sync.Mutex
	users int
}

func (l *nameLocks) lock(name string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*nameLock{}
	}
	one := l.held[name]
	if one == nil {
		one = &nameLock{}
		l.held[name] = one
	}
	one.users++
	l.mu.Unlock()
	one.mu.Lock()
	return func() {
		one.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, name)
		}
	}
}
