// Package uffd brings absent pages into a machine's memory when they are touched, through userfaultfd, and lets machines
// restored from one snapshot share the pages they only read. The machine is an unmodified process, such as a QEMU.
//
// Terms: a Base is one snapshot's memory as an anonymous file (memfd) of ours: a page is either filled, or absent and a
// hole in that file. Attaching replaces the machine's memory by a private mapping of the base: what the machine writes is
// its own copy; what it reads is everybody's. A fault is a machine's access to an absent page: it waits in the kernel, we
// get a message, fill the page in the base and wake it. To inject is to run a system call inside another process, with
// ptrace.
//
// # Attaching
//
// While the machine waits and runs no guest code, its main thread is stopped and made to call
//
//	mmap                      a scratch page for arguments; unmapped at the end
//	socketpair, recvmsg       to be given the base, open to be read only: nothing in the machine's process can change it
//	mmap(RAM, PROT_NONE)      private and fixed, over its memory; then the base's descriptor is closed there
//	madvise                   don't fork, don't dump
//	USERFAULTFD_IOC_NEW       on /dev/userfaultfd, given and closed in the same way: the process itself may have no privilege
//	UFFDIO_API, UFFDIO_REGISTER
//	mprotect(RAM, READ|WRITE) only now: a touch between the mapping and the registration would read zeros and, worse,
//	                          leave a zero page in the base for every other machine
//
// and then the descriptor is copied here with pidfd_getfd. The machine's own copy stays open: if we die, its faults wait.
// They never read zeros (I7).
//
// A machine that boots keeps its memory: absent pages truly are zero and the kernel fills them. It only gets a userfaultfd
// for asynchronous write protection, on which package pagemap builds.
//
// # Layouts (native byte order; <linux/userfaultfd.h>)
//
//	uffdio_api       24 bytes  u64 api = 0xaa, u64 features, u64 ioctls
//	uffdio_register  32 bytes  u64 start, u64 len, u64 mode, u64 ioctls
//	uffdio_range     16 bytes  u64 start, u64 len
//	uffd_msg         32 bytes  u8 event, 7 reserved, u64 flags, u64 address, 8 unused here
//
// # Invariants
//
//   - A page's filled bit is set after its bytes are in the base. Filling twice writes the same bytes, so it is harmless.
//   - A fault whose page can't be had waits, is retried, and in the end is reported on Lost. It is never woken for nothing.
//   - An injected process gets its registers and signal mask back on every path, and is let go of even if it hangs.
//
// # Lock order
//
// Pager.turn (held in poll and read) is never held with another lock. Base.mu and Base.life are leaves, not held while
// the Source reads.
package uffd
