// Package host is the application: every operation on VMs, one file a verb, with plain request and result structs.
// Doors (CLI, HTTP, MCP) translate to it and decide nothing.
//
// Terms. A VM is a record and a history in the store; a guest is what runs for it now, if anything does: a machine, the
// conversation with its agent, and the overlays of its disks. A cut is one instant of a guest, taken in the pause window
// (cut.go, and nowhere else). A checkpoint is a cut that the store has made durable.
//
//	          Create, Start, Fork
//	(stopped) ───────────────────▶ running ── checkpoint, exec ──▶ running
//	    ▲                            │  │
//	    └── Stop, clean shutdown ────┘  └── engine or guest dies ──▶ crashed ── Start ──▶ running
//
// A daemon that ends cleanly checkpoints and stops every running VM; Start then goes on exactly there. One that is
// killed takes its machines with it; they are crashed, and Start goes on from the head.
//
// A guest can end at any moment by itself. Whoever notices first settles it (noteEnd); what it held is freed when the verb
// under way has ended, which may still be storing what it cut.
//
// Locks, in order: vm.op (a verb that changes the VM holds it, for as long as it takes, and a new VM is held until it is
// up) → vm.recording (held while a state is written) → Host.mu and vm.mu (maps and fields; never held across I/O).
// runs.mu, answers.mu and guestVM.pinMu are leaves.
package host
