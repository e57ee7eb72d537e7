// Package fake is an engine whose machines are Go functions, for testing everything above an engine on any system.
//
// A fake machine keeps the promises of a real one that matter above it, and keeps them exactly:
//
//   - All that the guest knows lies in its memory, its disk and its CPU state. A restored machine gets nothing else, so a
//     host that mixes up two instants, or loses a page or a block, sees a guest that has forgotten or contradicts itself.
//   - Absent pages come from the source when the guest first touches them. Nothing is touched before it runs.
//   - Whatever the guest does is a step of its one processor. Pause waits for the step under way; then nothing happens,
//     no clock advances, and the channel is neither read nor written, until Resume.
//   - Its generator of random numbers lies in its memory, and its clock in its CPU state: two restores of one checkpoint
//     give the same "random" numbers and a clock that is late, until they are repaired.
//
// Inside runs a small deterministic agent: guest.Server over a handler whose commands are Go functions (commands.go) and
// whose shell knows lists, redirections, variables and nested scripts (shell.go). A running command is a record in guest
// memory; after a restore it goes on where it was, and can be attached to.
//
// Guest memory, little-endian:
//
//	page 0     0  8  "FAKEMEM\x01"
//	           8  8  counter: steps of the processor
//	          16 32  state of the random generator; zero: not seeded yet
//	page 1…    0  4  length of the kernel's record
//	           4  …  the kernel's record, JSON: identity, processes with their output so far
//	last quarter     scratch that the command "fill" writes to
//
// The disk holds a file system of its own (files.go).
//
// Faults are injected through Config.Fault, which is asked before every step of the engine and of the agent, and by Machine's
// Crash, Panic and Hang, which the commands crash, panic and hang also reach. Violations records what must never happen:
// a workload that ran in a restored machine before its random generator was repaired.
//
// Lock order: cpu token → Machine.mu → Engine.mu. The token is held during a step, so a step that waits for an absent page
// keeps Pause waiting, as in a real machine.
package fake
