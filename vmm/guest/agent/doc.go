// Command agent is what runs inside a guest: its init, and the far end of package guest's protocol.
//
// It has three lives, told apart by its first argument and its process number:
//
//	/init               process 1 of the initrd: mounts the root disk, moves there, and becomes one of the following
//	agent serve         process 1: the guest's init, reaping orphans; or, when /etc/flash/init of the root disk names
//	                    another init, an ordinary process started before that
//
// Terms: the workload is everything below the control group /sys/fs/cgroup/flash; each exec has a group of its own in it,
// made ahead where possible. The agent itself stays outside, so it runs on while the workload is frozen.
//
// # Quietness
//
// Every page the agent dirties is saved by every checkpoint. So an idle agent has no timer, no ticker and no garbage
// collection by time: all its goroutines are parked in epoll or in a futex, and the runtime's monitor thread sleeps with
// them. Buffers are made when there is something to hold and start over at the same addresses when empty.
//
// # Coldness
//
// Under emulation a restored guest has to have every basic block translated that runs for the first time, and until its
// first answer almost all do. So what a repair and a first command go through is kept short: what a repair needs is opened or
// looked up by the freeze before (foresight), a command's control group is there already and is removed after its answer,
// messages on that way are binary, and package os is avoided where a system call will do.
//
// # Invariants
//
//   - A command is born inside its group (clone3), so no descendant can be outside of it.
//   - No command is started while the workload is frozen: its parent would wait for it inside vfork.
//   - After Repair has failed nothing thaws the workload but an explicit Thaw.
//   - The read end of a command's output stays open while anyone holds the other one: servers started in the background
//     must not die of SIGPIPE.
//   - A boot that can't go on says why on the console, in one line, and powers off.
//
// # Files
//
//	/etc/flash/init          on the root disk: command line of the init to run instead of the agent
//	/etc/flash/hooks.d/*     executables run by Repair, in the order of their names
//	/run/flash/agent         this program
//	/run/flash/generation    which life of the VM this is; changes at every fork and rewind
//
// The machine id isn't touched: programs keep state under it. A hook may change it after a fork.
package main
