// Package qemu is the engine that runs a machine as an unmodified QEMU process.
//
// Terms: a shape is what is fixed when a QEMU is started: facts, CPUs, memory size, number of disks. A waiting process is
// a QEMU of some shape, started with -incoming defer and without a kernel, that can become any restored machine of that
// shape; the pool holds a few. Specialising gives it its disks, ports and console. An empty drive is the null-co node that
// stands in for a disk until then.
//
// What QEMU is given
//
//	fd 3  the monitor (QMP), a socket pair: no path, nobody else can connect, nothing is left behind
//	fd 4  the guest's serial console, copied by us to Attach.Console
//	fd 5  the agent's virtio-serial port "flash.agent"; it is Channel(), connected before the guest exists,
//	      so that a restored guest sees no event on it and goes on inside its old session
//	fd 6  the kernel, and 7 the initrd, of a machine that boots
//	later, over the monitor: Attach.Dir, as a descriptor to reach the disks' socket from, and files that states go through
//
// Guest memory is a memory-backend-memfd: it has no name in any file system. Disks are NBD clients of blockdelta/nbd over
// a unix socket in Attach.Dir, the only file of a machine besides its console.
//
// What it is not given: where this process is root, each QEMU runs as a user of its own, without a name, group, capability
// or a way to get one (account_linux.go), inside a control group of its own that bounds what it takes (cgroup_linux.go).
// It opens no file by a path that leads through our folders: they are closed to it. -sandbox takes from it the system calls
// that it can do without. Probe says what of this can be had, and why not.
//
// Invariants (the numbers are those of ARCHITECTURE.md)
//
//   - Memory and state are one instant: after SaveState a second scan must be empty (checked in savestate_linux.go).
//   - MIGRATION "completed" comes before the run state changes: Resume may only follow once it is "postmigrate". Without
//     that wait, 2 of 300 cycles left a machine stopped for ever.
//   - Every call to the monitor has a deadline (I9). A QEMU that doesn't answer ends in a sentence, never in a hang.
//   - Nothing compensates by deleting state (I10): Close ends a process and removes sockets, nothing else.
//   - A process is killed only after its start time and executable were found unchanged.
//
// Order of ending a machine: kill → tracker and pager end → reap → its control group → disks → base memory released → Done.
//
// Lock order: Engine.mu, pool.mu and machine.mu are never held together, nor across a call to the monitor.
//
// Threads: PR_SET_PDEATHSIG follows the thread that forked, so one locked goroutine (spawner) starts every QEMU and lives
// as long as the engine; when this process dies, however it dies, every QEMU dies with it. Nothing here blocks in wait(2)
// for a QEMU that lives: such a wait would swallow the stops of the ptrace that attaches to its memory. Death is seen
// through a pidfd.
package qemu
