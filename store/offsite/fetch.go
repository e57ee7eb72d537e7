package offsite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store"
)

const (
	fetchAtOnce = 4
	fetchBuffer = 4 << 20
	lookBatch   = 4096 // chunks asked for at once
)

// fetch brings the packs that hold what is reached and isn't near, and ends when all of it is near: whatever a gc here has
// taken meanwhile is fetched again.
func (p *puller) fetch(ctx context.Context, roots []cas.Hash) error {
	bad := map[cas.Hash]error{} // by the pack's content hash
	for range maxTries {
		p.r.Progress.tell("find what is absent", 0, 0)
		absent, err := p.o.absent(ctx, roots)
		if err != nil || len(absent) == 0 {
			return err
		}
		if err := p.o.c.Remote.Refresh(ctx); err != nil {
			return err
		}
		packs, err := p.o.holding(absent, bad)
		if err != nil {
			return err
		}
		if err := p.bring(ctx, packs, bad); err != nil {
			return err
		}
	}
	return fmt.Errorf("what was brought is not found here: %w", ErrIncomplete)
}

// absent gives what snapshots reach and the near tier hasn't. What it has it was asked for, and so a sweep that runs leaves it.
func (o *Offsite) absent(ctx context.Context, roots []cas.Hash) ([]cas.Hash, error) {
	c := newCollect()
	w := store.NewWalker(o.layered(), nil, c.visit)
	for _, id := range roots {
		if err := w.Snapshot(ctx, id); err != nil {
			return nil, err
		}
	}
	var absent []cas.Hash
	for some := range slices.Chunk(c.take(), lookBatch) {
		have, err := o.c.Packs.Has(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, ok := range have {
			if !ok {
				absent = append(absent, some[i])
			}
		}
	}
	return absent, nil
}

// holding chooses packs in the bucket that hold all of some chunks.
func (o *Offsite) holding(chunks []cas.Hash, bad map[cas.Hash]error) ([]remote.PackSource, error) {
	there := map[cas.PackID]remote.PackSource{}
	var worst error
	for _, p := range o.c.Remote.Packs() {
		if err := bad[p.ContentHash]; err != nil {
			worst = err
			continue
		}
		there[p.ID] = p
	}
	chosen := map[cas.PackID]bool{}
	var packs []remote.PackSource
	for _, h := range chunks {
		ids := o.c.Remote.PacksOf(h)
		if slices.ContainsFunc(ids, func(id cas.PackID) bool { return chosen[id] }) {
			continue
		}
		i := slices.IndexFunc(ids, func(id cas.PackID) bool { _, ok := there[id]; return ok })
		if i < 0 {
			return nil, errors.Join(fmt.Errorf("chunk %s: %w", h, ErrIncomplete), worst)
		}
		chosen[ids[i]] = true
		packs = append(packs, there[ids[i]])
	}
	return packs, nil
}

// bring imports packs. One that is damaged is noted in bad; another may have what it had.
func (p *puller) bring(ctx context.Context, packs []remote.PackSource, bad map[cas.Hash]error) error {
	var total int64
	for _, s := range packs {
		total += s.Bytes
	}
	var mu sync.Mutex // guards done, p.report and bad
	var done int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchAtOnce)
	for _, s := range packs {
		g.Go(func() error {
			err := p.o.importPack(gctx, s, func(n int) {
				mu.Lock()
				defer mu.Unlock()
				done += int64(n)
				p.r.Progress.tell("fetch", done, total)
			})
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, pack.ErrDamaged) {
				p.o.c.Log.Error("a pack in the bucket is damaged", "pack", pack.FileName(s.ContentHash), "err", err)
				bad[s.ContentHash] = err
				return nil
			}
			if err == nil {
				p.report.Packs++
				p.report.NewBytes += s.Bytes
			}
			return err
		})
	}
	return g.Wait()
}

// importPack brings one pack here.
func (o *Offsite) importPack(ctx context.Context, s remote.PackSource, moved func(n int)) error {
	r := bufio.NewReaderSize(&countedReader{ctx, io.NewSectionReader(s.Reader, 0, s.Bytes), moved}, fetchBuffer)
	if err := o.c.Packs.ImportPackFrom(ctx, s.ContentHash, r, s.Bytes); err != nil {
		return fmt.Errorf("fetch pack %s: %w", pack.FileName(s.ContentHash), err)
	}
	return nil
}

type countedReader struct {
	ctx   context.Context
	r     io.Reader
	moved func(n int)
}

func (c *countedReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.moved(n)
	return n, err
}
