package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"flash/vmm"

	"golang.org/x/sys/unix"
)

// maxStateBytes bounds a state. Seen: 0.4 MB.
const maxStateBytes = 256 << 20

// SaveState gives the CPUs and devices. Saving twice in one pause gives the same bytes.
func (m *machine) SaveState(ctx context.Context) (vmm.State, error) {
	m.ops.Lock()
	defer m.ops.Unlock()
	if hasEnded(m.done) {
		return vmm.State{}, m.explain("save state", vmm.ErrGone)
	}
	m.mu.Lock()
	now, kept := m.phase, m.state
	m.mu.Unlock()
	switch now {
	case saved:
		return vmm.State{Data: append([]byte(nil), kept.Data...), Facts: kept.Facts}, nil
	case paused:
	case fresh:
		return vmm.State{}, errors.New("save state: the machine hasn't started; its kernel is not yet in its memory")
	default:
		return vmm.State{}, errors.New("save state: the machine isn't paused")
	}
	ctx, cancel := context.WithTimeout(ctx, migrationDeadline)
	defer cancel()
	data, err := m.migrateOut(ctx)
	if err != nil {
		return vmm.State{}, m.explain("save state", err)
	}
	state := vmm.State{Data: data, Facts: m.in.shape.facts}
	m.mu.Lock()
	m.phase, m.state = saved, state
	m.mu.Unlock()
	return vmm.State{Data: append([]byte(nil), data...), Facts: state.Facts}, nil
}

// migrateOut writes the state into a memory file of ours; 3 ms, where a pipe through a program takes 12.
func (m *machine) migrateOut(ctx context.Context) ([]byte, error) {
	q := m.in.qmp
	file, err := memoryFile("flash-state")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := q.callWith(ctx, "getfd", map[string]string{"fdname": "state"}, nil, rights(file)); err != nil {
		return nil, err
	}
	w := q.watch("MIGRATION")
	defer w.stop()
	m.mu.Lock()
	m.unsettled = true
	m.mu.Unlock()
	if err := q.call(ctx, "migrate", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return nil, err
	}
	if err := w.migrated(ctx); err != nil {
		return nil, err
	}
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	return readState(file)
}

// settle waits until the run state is what the end of a migration makes it: the event, and query-migrate, tell of the end
// before it. A cont in between is refused, or leaves a guest running that QEMU takes for stopped.
func (m *machine) settle(ctx context.Context) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		run, err := m.status(ctx, "query-status")
		if err != nil {
			return err
		}
		settled, migration := run == "postmigrate", ""
		if !settled {
			if migration, err = m.status(ctx, "query-migrate"); err != nil {
				return err
			}
			// A migration that didn't come about leaves the run state as it was. The run state is asked for again, after
			// the migration's end was seen: a migration that completes goes through finish-migrate.
			switch migration {
			case "", "none", "failed", "cancelled", "completed":
				if run, err = m.status(ctx, "query-status"); err != nil {
					return err
				}
				settled = run != "finish-migrate"
			}
		}
		if settled {
			m.mu.Lock()
			m.unsettled = false
			m.mu.Unlock()
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("QEMU is in run state %q, migration %q, and stays there: %w", run, migration, ctx.Err())
		}
	}
}

func (m *machine) status(ctx context.Context, query string) (string, error) {
	var answer struct {
		Status string `json:"status"`
	}
	err := m.in.qmp.call(ctx, query, nil, &answer)
	return answer.Status, err
}

// memoryFile is a file without a name, on no disk.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory file: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readState(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxStateBytes {
		return nil, fmt.Errorf("the state has %d bytes, more than %d", info.Size(), maxStateBytes)
	}
	data := make([]byte, info.Size())
	if _, err := file.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	return data, checkState(data)
}
