//go:build linux && amd64

package qemu

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of /dev/kvm (linux/kvm.h).
const (
	kvmGetAPIVersion       = 0xae00
	kvmCreateVM            = 0xae01
	kvmGetVCPUMmapSize     = 0xae04
	kvmCreateVCPU          = 0xae41
	kvmSetTSSAddr          = 0xae47
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmRun                 = 0xae80
	kvmSetRegs             = 0x4090ae82
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84

	kvmExitHalt = 5
)

// struct kvm_run: immediate_exit is a byte at 1, exit_reason 4 bytes at 8.
const (
	runImmediateExit = 1
	runExitReason    = 8
)

// trialGuest is a real-mode loop; a round is loopRounds × 2 + 3 instructions, and halts at its end. Way in and out of the
// guest count too: where virtualization is emulated they take some 0.1 ms, a round 0.5 ms; so rounds must not be shorter.
//
//	again: mov cx, 0x4000   b9 00 40
//	loop:  dec cx           49
//	       jnz loop         75 fd
//	       hlt              f4
//	       jmp again        eb f7
var trialGuest = []byte{0xb9, loopRounds & 0xff, loopRounds >> 8, 0x49, 0x75, 0xfd, 0xf4, 0xeb, 0xf7}

const (
	loopRounds        = 0x4000
	roundInstructions = 2*loopRounds + 3
	maxRounds         = 256
	trialMemory       = 64 << 10
)

// kvmTrial runs a small loop in a guest, for trialTime, until ctx ends at the latest, and gives the instructions per
// second of its fastest round.
func kvmTrial(ctx context.Context) (float64, error) {
	type result struct {
		rate float64
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		// The thread is signalled when time is up, so it must be this one's; and it isn't given back, should it be stuck.
		runtime.LockOSThread()
		rate, err := runTrial(ctx)
		if ctx.Err() == nil {
			runtime.UnlockOSThread()
		}
		ended <- result{rate, err}
	}()
	select {
	case r := <-ended:
		return r.rate, r.err
	case <-ctx.Done():
	}
	select { // the rounds run so far may be enough to judge by
	case r := <-ended:
		return r.rate, r.err
	case <-time.After(time.Second):
		return 0, fmt.Errorf("/dev/kvm didn't give a guest back: %w", ctx.Err())
	}
}

func runTrial(ctx context.Context) (float64, error) {
	kvm, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/kvm: %w", err)
	}
	defer unix.Close(kvm)
	if version, err := ioctl(kvm, kvmGetAPIVersion, 0); err != nil || version != 12 {
		return 0, fmt.Errorf("/dev/kvm has version %d, not 12%s", version, because(err))
	}
	vm, err := ioctl(kvm, kvmCreateVM, 0)
	if err != nil {
		return 0, fmt.Errorf("KVM_CREATE_VM: %w", err)
	}
	defer unix.Close(vm)
	memory, err := unix.Mmap(-1, 0, trialMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, fmt.Errorf("memory of the trial guest: %w", err)
	}
	defer unix.Munmap(memory)
	copy(memory, trialGuest)
	// SAFETY: struct kvm_userspace_memory_region; memory is off the heap and mapped until this function returns, after the
	// virtual CPU's last run.
	region := [4]uint64{0, 0, trialMemory, uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if _, err := ioctlPointer(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return 0, fmt.Errorf("KVM_SET_USER_MEMORY_REGION: %w", err)
	}
	ioctl(vm, kvmSetTSSAddr, 0xfffbd000) // old Intel CPUs need it to run real mode; others don't know it
	cpu, err := ioctl(vm, kvmCreateVCPU, 0)
	if err != nil {
		return 0, fmt.Errorf("KVM_CREATE_VCPU: %w", err)
	}
	defer unix.Close(cpu)
	size, err := ioctl(kvm, kvmGetVCPUMmapSize, 0)
	if err != nil || size < 4096 {
		return 0, fmt.Errorf("KVM_GET_VCPU_MMAP_SIZE: %d bytes%s", size, because(err))
	}
	run, err := unix.Mmap(cpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("mapping the virtual CPU: %w", err)
	}
	defer unix.Munmap(run)

	// struct kvm_sregs is 312 bytes: segments of 24 bytes, cs first; base is 8 bytes at 0 of one, selector 2 at 12.
	var sregs [312]byte
	if _, err := ioctlPointer(cpu, kvmGetSregs, unsafe.Pointer(&sregs)); err != nil {
		return 0, fmt.Errorf("KVM_GET_SREGS: %w", err)
	}
	clear(sregs[0:8])
	clear(sregs[12:14])
	if _, err := ioctlPointer(cpu, kvmSetSregs, unsafe.Pointer(&sregs)); err != nil {
		return 0, fmt.Errorf("KVM_SET_SREGS: %w", err)
	}
	// struct kvm_regs is 18 words: rip is the 17th, rflags the 18th, of which bit 1 is always set.
	regs := [18]uint64{16: 0, 17: 2}
	if _, err := ioctlPointer(cpu, kvmSetRegs, unsafe.Pointer(&regs)); err != nil {
		return 0, fmt.Errorf("KVM_SET_REGS: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, trialTime) // making the guest may have taken long; that isn't its speed
	defer cancel()
	stop := kickWhenDone(ctx, run)
	defer stop()
	best := time.Duration(0)
	for range maxRounds {
		took, err := runRound(ctx, cpu, run)
		if err != nil && (best == 0 || ctx.Err() == nil) {
			return 0, err
		}
		if err == nil && (best == 0 || took < best) {
			best = took
		}
		if ctx.Err() != nil {
			break
		}
	}
	return roundInstructions / best.Seconds(), nil
}

// runRound runs the guest to its next halt. A round that ctx cuts short is an error.
func runRound(ctx context.Context, cpu int, run []byte) (time.Duration, error) {
	began := time.Now()
	for {
		_, err := ioctl(cpu, kvmRun, 0)
		switch {
		case err == unix.EINTR && ctx.Err() != nil:
			return 0, fmt.Errorf("%d instructions weren't done in %v", roundInstructions, time.Since(began).Round(time.Millisecond))
		case err == unix.EINTR:
			continue // the runtime's own signal; the guest goes on where it was
		case err != nil:
			return 0, fmt.Errorf("KVM_RUN: %w", err)
		}
		if reason := *(*uint32)(unsafe.Pointer(&run[runExitReason])); reason != kvmExitHalt { // SAFETY: inside the mapping
			return 0, fmt.Errorf("the trial guest stopped for reason %d instead of at its end", reason)
		}
		return max(time.Since(began), time.Nanosecond), nil
	}
}

// kickWhenDone brings the calling thread out of KVM_RUN when ctx ends. stop returns when it won't any more.
func kickWhenDone(ctx context.Context, run []byte) (stop func()) {
	thread := unix.Gettid()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-quit:
		case <-ctx.Done():
			run[runImmediateExit] = 1                       // for a run that is about to begin
			unix.Tgkill(unix.Getpid(), thread, unix.SIGURG) // the runtime's own signal for such: it does no harm
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func ioctl(fd int, request, argument uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, argument)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ioctlPointer keeps argument a pointer until the call itself, so that what it points to may lie on a stack that moves.
func ioctlPointer(fd int, request uintptr, argument unsafe.Pointer) (int, error) {
	// SAFETY: argument points to the struct that request is about, alive over the call.
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
