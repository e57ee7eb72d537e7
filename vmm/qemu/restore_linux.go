package qemu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"flash/memtrack"
	"flash/vmm"
)

// Restore gives a paused machine that goes on from st at Resume. Everything that can be refused is refused before a process
// is started or taken.
func (e *Engine) Restore(ctx context.Context, s vmm.Spec, a vmm.Attach, st vmm.State) (vmm.Machine, error) {
	began := time.Now()
	shape, err := e.admit(ctx, s, a, st)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer e.pool.hold(shape)()
	base, err := e.baseFor(a)
	if err != nil {
		return nil, fmt.Errorf("restore: memory: %w", err)
	}
	prefetched, end := prefetch(ctx, base, a.WorkingSet)
	defer end()
	in := e.pool.take(shape)
	waited := in != nil
	if !waited {
		if in, err = e.spawn(ctx, shape, nil); err != nil {
			base.release()
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	m, err := e.assemble(ctx, in, a, base)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err = m.load(ctx, st.Data); err == nil {
		err = prefetched()
	}
	if err != nil {
		err = in.blame(err)
		m.undo()
		return nil, fmt.Errorf("restore: %w", err)
	}
	m.phase = paused
	e.supervise(m)
	e.log.Debug("machine restored", "pid", in.id.PID, "took", time.Since(began), "waited", waited)
	return m, nil
}

// admit checks what is asked for against this host.
func (e *Engine) admit(ctx context.Context, s vmm.Spec, a vmm.Attach, st vmm.State) (shape, error) {
	host, err := e.Probe(ctx)
	if err != nil {
		return shape{}, err
	}
	if err := compareFacts(st.Facts, host.Facts); err != nil {
		return shape{}, err
	}
	if s.Facts != (vmm.Facts{}) && s.Facts != st.Facts {
		return shape{}, fmt.Errorf("the machine asked for isn't the state's: %w", compareFacts(st.Facts, s.Facts))
	}
	if err := ctx.Err(); err != nil {
		return shape{}, err
	}
	if err := checkState(st.Data); err != nil {
		return shape{}, err
	}
	if a.Memory == nil {
		return shape{}, errors.New("no memory to restore from")
	}
	if has, wants := a.Memory.Slots(), s.MemBytes/memtrack.PageBytes; has != wants {
		return shape{}, fmt.Errorf("the memory to restore from has %d pages, the machine %d", has, wants)
	}
	return shapeOf(s, a, host.Facts)
}

// baseFor gives the memory that machines of one snapshot share. Without a key it is shared with nobody.
func (e *Engine) baseFor(a vmm.Attach) (*sharedBase, error) {
	key := "key " + a.MemoryKey
	if a.MemoryKey == "" {
		key = fmt.Sprintf("alone %d", e.alone.Add(1))
	}
	return e.bases.get(key, a.Memory)
}

// prefetch brings the working set into the base, which needs no machine, while one is made. prefetched waits for it; end
// cuts it short if it is still going on, and waits, too.
func prefetch(ctx context.Context, base *sharedBase, pages []uint64) (prefetched func() error, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() {
		if len(pages) == 0 {
			result <- nil
		} else if err := base.prefetch(ctx, pages); err != nil {
			result <- fmt.Errorf("the working set: %w", err)
		} else {
			result <- nil
		}
	}()
	prefetched = sync.OnceValue(func() error { return <-result })
	return prefetched, func() { cancel(); prefetched() }
}

// load gives a waiting machine its state. The agent's channel is connected since the process began. Under KVM this writes to
// guest memory: setting the register in which the guest has said where it wants the wall clock makes the kernel write it
// there, 12 bytes. Tracking has begun before, so they are in the next cut.
func (m *machine) load(ctx context.Context, state []byte) error {
	ctx, cancel := context.WithTimeout(ctx, migrationDeadline)
	defer cancel()
	q := m.in.qmp
	file, err := memoryFile("flash-state")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(state, 0); err != nil { // the offset QEMU reads from stays 0
		return fmt.Errorf("state: %w", err)
	}
	if err := q.callWith(ctx, "getfd", map[string]string{"fdname": "state"}, nil, rights(file)); err != nil {
		return fmt.Errorf("load the state: %w", err)
	}
	w := q.watch("MIGRATION")
	defer w.stop()
	if err := q.call(ctx, "migrate-incoming", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return fmt.Errorf("load the state: %w", err)
	}
	if err := w.migrated(ctx); err != nil {
		return fmt.Errorf("load the state: %w", err)
	}
	return nil
}
