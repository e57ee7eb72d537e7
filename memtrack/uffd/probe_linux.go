package uffd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// Support says what works here.
type Support struct {
	Missing bool // absent pages can be brought in when they are touched
	Async   bool // writes can be tracked by pagemap.Scan
	Inject  bool // another process can be made to call the kernel
	Others  bool // also for a process without privilege
}

// Probe tries each thing on memory of this process and says why something doesn't work, by "missing", "async", "inject",
// "others".
func Probe() (Support, map[string]string) {
	var s Support
	reasons := map[string]string{}
	note := func(name string, err error) bool {
		if err != nil {
			reasons[name] = err.Error()
		}
		return err == nil
	}
	s.Missing = note("missing", tryMissing())
	s.Async = note("async", tryAsync())
	s.Inject = note("inject", tryInject())
	s.Others = note("others", tryOthers())
	return s, reasons
}

func tryAsync() error {
	fd, err := newUserfaultfd(featuresProtect)
	if err != nil {
		return fmt.Errorf("userfaultfd without asynchronous write protection (Linux 6.7 has it): %w", err)
	}
	return unix.Close(fd)
}

// tryOthers makes a userfaultfd by the device, or looks whether everybody may make one.
func tryOthers() error {
	if allowed, err := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd"); err == nil && strings.TrimSpace(string(allowed)) == "1" {
		return nil
	}
	device, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a process without privilege gets a userfaultfd by %s (Linux 6.1 has it) or vm.unprivileged_userfaultfd=1: %w", devicePath, err)
	}
	defer unix.Close(device)
	fd, err := unix.IoctlRetInt(device, ioctlNew)
	if err != nil {
		return fmt.Errorf("make a userfaultfd by %s: %w", devicePath, err)
	}
	return unix.Close(fd)
}

// tryInject looks for what forbids ptrace: the architecture and Yama.
func tryInject() error {
	if injectReason != nil {
		return injectReason
	}
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) == "3" {
		return fmt.Errorf("kernel.yama.ptrace_scope is 3, which forbids ptrace: %w", unix.EPERM)
	}
	return nil
}

// tryMissing maps a file privately, reads a hole of it and answers the fault.
func tryMissing() error {
	const pages = 4
	file, err := unix.MemfdCreate("flash-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make an anonymous file: %w", err)
	}
	defer unix.Close(file)
	if err := unix.Ftruncate(file, pages*pageBytes); err != nil {
		return fmt.Errorf("make an anonymous file: %w", err)
	}
	mem, err := unix.Mmap(file, 0, pages*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map an anonymous file: %w", err)
	}
	fd, err := newUserfaultfd(featureMissingShmem)
	if err != nil {
		_ = unix.Munmap(mem)
		return fmt.Errorf("userfaultfd for shared memory (needs CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1): %w", err)
	}
	read := make(chan error, 1)
	defer func() {
		_ = unix.Close(fd) // lets the reader go if it still waits
		<-read
		_ = unix.Munmap(mem)
	}()
	start := addressOf(mem)
	if err := ioctl(fd, ioctlRegister, encodeWords(start, uint64(len(mem)), modeMissing, 0)); err != nil {
		close(read)
		return fmt.Errorf("register memory: %w", err)
	}
	want := bytes.Repeat([]byte{0x5a}, pageBytes)
	got := make([]byte, pageBytes)
	result := make(chan error, 1)
	go func() {
		defer close(read)
		// Through the kernel (I6): this thread parks in process_vm_readv, not in a load.
		local := []unix.Iovec{{Base: &got[0], Len: pageBytes}}
		_, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(start + pageBytes), Len: pageBytes}}, 0)
		result <- err
	}()
	if err := answerOne(fd, file, start, want); err != nil {
		return err
	}
	select {
	case err := <-result:
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("the page read isn't the one given: %w", memtrack.ErrUnsupported)
		}
		return err
	case <-time.After(time.Second):
		return fmt.Errorf("a page given didn't wake its reader: %w", os.ErrDeadlineExceeded)
	}
}

// answerOne waits a second for a fault and answers it.
func answerOne(fd, file int, start uint64, page []byte) error {
	deadline := time.Now().Add(time.Second)
	message := make([]byte, messageBytes)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("reading an absent page made no fault: %w", os.ErrDeadlineExceeded)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for a fault: %w", err)
		}
		n, err := unix.Read(fd, message)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a fault: %w", err)
		}
		address, isFault := faultAddress(message)
		if n != messageBytes || !isFault {
			return fmt.Errorf("a fault message of %d bytes and event %#x", n, message[0])
		}
		address &^= pageBytes - 1
		if _, err := unix.Pwrite(file, page, int64(address-start)); err != nil {
			return fmt.Errorf("give a page: %w", err)
		}
		return wake(fd, address)
	}
}
