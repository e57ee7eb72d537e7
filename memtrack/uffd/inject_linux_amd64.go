package uffd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// injectTimeout bounds one injection (I9); it takes about half a millisecond.
const injectTimeout = 5 * time.Second

// injectReason says why inject can't work here; nil when it may.
var injectReason error

// inject stops the main thread of a process, lets script run system calls in it, and lets it go on as if nothing had been.
// Nobody may wait(2) for the process meanwhile: such a wait would swallow the stops.
//
//	running ─seize, interrupt─▶ stopped ─step…─▶ stopped ─restore, detach─▶ running
//	any ─deadline─▶ the tracing thread ends, and with it the kernel detaches: running, perhaps with our registers
func inject(ctx context.Context, pid int, script func(c caller) error) error {
	ctx, cancel := context.WithTimeout(ctx, injectTimeout)
	defer cancel()
	done := make(chan error, 1)
	go onOwnThread(func() (released bool) {
		t := &tracee{pid: pid, ctx: ctx}
		err := t.run(script)
		done <- err
		return t.released
	})
	if err := <-done; err != nil {
		return fmt.Errorf("inject system calls: %w", err)
	}
	return nil
}

// onOwnThread runs f on a thread that ends with it unless f has released what it traced. The first thread of a Go process
// can't end, so it hands on.
func onOwnThread(f func() bool) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		handedOn := make(chan struct{})
		go func() {
			defer close(handedOn)
			onOwnThread(f)
		}()
		<-handedOn // meanwhile this thread stays taken, so that it isn't the other one's
		runtime.UnlockOSThread()
		return
	}
	if f() {
		runtime.UnlockOSThread()
	}
}

// tracee is the process while we hold it. All methods run on the thread that seized it.
type tracee struct {
	pid      int
	ctx      context.Context
	mem      *os.File
	saved    unix.PtraceRegs
	mask     uint64
	insn     uint64 // address of a syscall instruction
	page     uint64 // scratch page; 0: none
	held     int    // a signal that came meanwhile, delivered at the end
	released bool   // we trace nothing, so our thread may live on
}

func (t *tracee) run(script func(c caller) error) (err error) {
	t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", t.pid), os.O_RDWR, 0)
	if err != nil {
		t.released = true
		return err
	}
	defer t.mem.Close()
	if err := unix.PtraceSeize(t.pid); err != nil {
		t.released = true
		return fmt.Errorf("trace process %d: %w", t.pid, err)
	}
	if err := unix.PtraceInterrupt(t.pid); err != nil {
		return fmt.Errorf("stop process %d: %w", t.pid, err)
	}
	if err := t.waitStop(); err != nil {
		return err
	}
	if signal, code, err := getSignal(t.pid); err == nil && code>>8 == 0 {
		t.held = int(signal) // it was about to be delivered when we came
	}
	if err := unix.PtraceGetRegs(t.pid, &t.saved); err != nil {
		return t.letGo(fmt.Errorf("read registers: %w", err))
	}
	if t.mask, err = getSignalMask(t.pid); err != nil {
		return t.letGo(fmt.Errorf("read the signal mask: %w", err))
	}
	if err := setSignalMask(t.pid, allButTrap); err != nil {
		return t.letGo(fmt.Errorf("block signals: %w", err))
	}
	err = t.runScript(script)
	return t.restore(err)
}

func (t *tracee) runScript(script func(c caller) error) error {
	insn, err := t.findInstruction()
	if err != nil {
		return err
	}
	t.insn = insn
	none := int64(-1)
	page, err := t.call(unix.SYS_MMAP, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, uint64(none), 0)
	if err != nil {
		return fmt.Errorf("map a scratch page: %w", err)
	}
	t.page = page
	err = script(t)
	if _, unmapErr := t.call(unix.SYS_MUNMAP, t.page, pageBytes); unmapErr != nil {
		err = errors.Join(err, fmt.Errorf("unmap the scratch page: %w", unmapErr))
	}
	return err
}

// restore puts registers and signals back as they were and lets the process go. A system call that we interrupted is
// restarted by the kernel, because its number and result are among the registers.
func (t *tracee) restore(err error) error {
	if e := unix.PtraceSetRegs(t.pid, &t.saved); e != nil {
		return errors.Join(err, fmt.Errorf("restore registers: %w", e)) // not stopped: ending our thread lets it go
	}
	if e := setSignalMask(t.pid, t.mask); e != nil {
		err = errors.Join(err, fmt.Errorf("restore the signal mask: %w", e))
	}
	return t.letGo(err)
}

func (t *tracee) letGo(err error) error {
	if e := detach(t.pid, t.held); e != nil {
		return errors.Join(err, fmt.Errorf("let process %d go: %w", t.pid, e))
	}
	t.released = true
	return err
}

func (t *tracee) scratch() uint64 { return t.page }

func (t *tracee) get(b []byte, offset uint64) error {
	_, err := t.mem.ReadAt(b, int64(t.page+offset))
	return err
}

func (t *tracee) put(b []byte) error {
	if len(b) > pageBytes {
		return fmt.Errorf("%d bytes of arguments are more than a page", len(b))
	}
	_, err := t.mem.WriteAt(b, int64(t.page))
	return err
}
