package local

import (
	"context"
	"fmt"
	"sync"
)

// Sync makes everything durable that was put before. Calls at the same time share one fdatasync.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	if err := s.sync.join(ctx, s.syncAll); err != nil {
		return fmt.Errorf("sync chunks: %w", err)
	}
	return nil
}

// syncGroup lets callers share a round of work. Who comes while a round runs takes part in the next one, for the running
// one may have begun before what the caller cares about.
type syncGroup struct {
	mu      sync.Mutex // guards the rest
	running *syncRound
	next    *syncRound
}

type syncRound struct {
	done chan struct{}
	err  error // set before done is closed
}

// join waits for a round of work that begins after the call. When ctx ends first the round goes on without the caller.
func (g *syncGroup) join(ctx context.Context, work func() error) error {
	g.mu.Lock()
	if g.next == nil {
		g.next = &syncRound{done: make(chan struct{})}
	}
	mine := g.next
	if g.running == nil {
		g.running, g.next = mine, nil
		go g.run(mine, work)
	}
	g.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run does rounds until nobody waits for another.
func (g *syncGroup) run(round *syncRound, work func() error) {
	for round != nil {
		round.err = work()
		close(round.done)
		g.mu.Lock()
		round = g.next
		g.running, g.next = round, nil
		g.mu.Unlock()
	}
}

// wait returns when no round runs. Nobody may join any more.
func (g *syncGroup) wait() {
	for {
		g.mu.Lock()
		r := g.running
		g.mu.Unlock()
		if r == nil {
			return
		}
		<-r.done
	}
}

// syncAll makes the open pack and the rotated ones durable.
func (s *Store) syncAll() error {
	s.openMu.Lock()
	packs := append([]*packFile(nil), s.rotated...)
	if s.open != nil {
		packs = append(packs, s.open)
	}
	s.openMu.Unlock()
	for _, p := range packs {
		if err := s.syncPack(p); err != nil {
			return err
		}
	}
	return nil
}

// syncPack makes the records of one pack durable, and the folder's entry for it.
func (s *Store) syncPack(p *packFile) error {
	p.ioMu.Lock()
	end := p.end.Load()
	if p.sealed.Load() || p.syncedEnd >= end && p.dirSynced && !p.suspect {
		p.ioMu.Unlock()
		return nil
	}
	if !p.suspect {
		var err error
		if !s.skipSync {
			err = p.file.Sync()
		}
		if err == nil && !p.dirSynced {
			err = s.fs.SyncDir(s.packsDir)
		}
		if err == nil {
			p.syncedEnd, p.dirSynced = end, true
			s.counters.syncs.Add(1)
			p.ioMu.Unlock()
			return nil
		}
		p.suspect = true
		s.log.Error("a pack can't be made durable; it is copied", "pack", p.name(), "err", err)
	}
	p.ioMu.Unlock()
	return s.rescue(p)
}

// rescue copies a suspect pack to a new file under the same name and makes that durable. After a failed fsync the kernel
// calls the lost pages clean: another fsync of the same file would succeed, and prove nothing.
func (s *Store) rescue(p *packFile) error {
	s.appendMu.Lock() // nothing is appended meanwhile
	defer s.appendMu.Unlock()
	p.ioMu.Lock()
	defer p.ioMu.Unlock()
	if !p.suspect || p.sealed.Load() {
		return nil
	}
	end := p.end.Load()
	h, err := readHeader(p.file, end)
	if err != nil {
		return fmt.Errorf("rescue pack %s: %w", p.name(), err)
	}
	_, st, err := scanEntries(p.file, end)
	if err != nil {
		return fmt.Errorf("rescue pack %s: %w", p.name(), err)
	}
	if st.End != end || st.Records != int(p.records.Load()) {
		return fmt.Errorf("rescue pack %s: %d of %d records, %d of %d bytes can still be read; what is lost was never durable",
			p.name(), st.Records, p.records.Load(), st.End, end)
	}
	fresh, _, copied, err := s.copyPack(p.file, end, p.path, h)
	if err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return fmt.Errorf("rescue pack %s: %w", p.name(), err)
	}
	if copied.End != end {
		fresh.Close()
		return fmt.Errorf("rescue pack %s: the copy has %d bytes, want %d", p.name(), copied.End, end)
	}
	p.mu.Lock()
	p.file.Close()
	p.file = fresh
	p.mu.Unlock()
	p.syncedEnd, p.dirSynced, p.suspect = end, true, false
	s.counters.rescues.Add(1)
	return nil
}
