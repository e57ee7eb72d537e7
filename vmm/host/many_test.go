package host

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"flash/cas/castest"
	"flash/cas/local"
	"flash/vmm/guest"
)

// manyVMs is how many VMs' checkpoints arrive at once.
const manyVMs = 64

// Execs that checkpoint, and checkpoints, of 64 VMs at once against one store: all are committed, the daemon's memory is
// that of a few cuts and not of 64, and after the store was closed and opened again everything is there.
func TestSixtyFourVMsCheckpointAtOnce(t *testing.T) {
	w := &world{t: t, dir: t.TempDir(), chunks: castest.NewMemory(), faults: &faults{}}
	packs, err := local.Open(t.Context(), local.Config{Dir: w.dir, ReserveBytes: -1})
	w.must(err)
	t.Cleanup(func() { packs.Close() }) // whichever it is then
	w = newWorldOver(t, w, packs)
	id := func(i int) string { return fmt.Sprintf("vm-%d", i) }
	each := func(do func(ctx context.Context, id string) error) {
		t.Helper()
		group, ctx := errgroup.WithContext(t.Context())
		for i := range manyVMs {
			group.Go(func() error { return do(ctx, id(i)) })
		}
		w.must(group.Wait())
	}
	each(func(ctx context.Context, id string) error {
		_, err := w.Create(ctx, CreateRequest{ID: id, Bundle: "tiny", MemMiB: tinyMemMiB, Checkpoints: true})
		return err
	})

	var open, most atomic.Int64
	w.faults.on(func(step string) error {
		switch step {
		case "cut":
			open.Add(1)
		case "pending": // the last step of a pause: the cut holds its pages now
			for n := int64(len(w.Host.cuts)); ; {
				if was := most.Load(); was >= n || most.CompareAndSwap(was, n) {
					break
				}
			}
		}
		return nil
	})
	grown := watchOwnMemory(t)
	const rounds = 2
	for round := range rounds {
		each(func(ctx context.Context, id string) error {
			script := fmt.Sprintf("echo %s round %d > /root/text", id, round)
			r, err := w.Exec(ctx, ExecRequest{ID: id, Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}}}, guest.Streams{})
			if err == nil && (r.Code != 0 || r.Checkpoint == nil || r.Checkpoint.Number != round+1) {
				err = fmt.Errorf("%s round %d: %+v", id, round, r)
			}
			return err
		})
	}
	each(func(ctx context.Context, id string) error {
		_, err := w.Checkpoint(ctx, CheckpointRequest{ID: id, Label: "last"})
		return err
	})
	w.faults.on(nil)
	if n := open.Load(); n < manyVMs*(rounds+1) {
		t.Errorf("%d cuts were taken", n)
	}
	if n := most.Load(); n > cutsAtOnce || n < 2 {
		t.Errorf("%d cuts were open at once, at most %d should be, and more than one", n, cutsAtOnce)
	}
	// 64 cuts would hold 4 GiB: 64 MiB each. Other tests run beside this one.
	if most := grown(); most > 2<<30 {
		t.Errorf("64 VMs' checkpoints took %d MiB of memory", most>>20)
	} else {
		t.Logf("64 VMs' checkpoints took %d MiB of memory", most>>20)
	}

	w.kill() // nothing is saved but what the checkpoints have
	w.must(w.Close(context.Background()))
	w.must(w.meta.Close())
	w.must(packs.Close())
	packs, err = local.Open(t.Context(), local.Config{Dir: w.dir, ReserveBytes: -1})
	w.must(err)
	w.over = packs
	w.openStore()
	w.open(Deadlines{})
	each(func(ctx context.Context, id string) error {
		history, err := w.History(ctx, id)
		if err != nil || len(history) != rounds+1 || !history[rounds].Head {
			return fmt.Errorf("history of %s: %+v, %w", id, history, err)
		}
		if _, err := w.Start(ctx, id); err != nil {
			return err
		}
		out, r, err := w.try(id, "cat /root/text")
		if want := fmt.Sprintf("%s round %d", id, rounds-1); err != nil || r.Code != 0 || out != want {
			return fmt.Errorf("%s holds %q, want %q: %w", id, out, want, err)
		}
		return nil
	})
	if report, err := w.Check(t.Context(), CheckRequest{}); err != nil || report.Worst != "" {
		t.Errorf("%+v, %v", report, err)
	}
}
