// Package vmmtest is the suite of promises every vmm.Engine keeps.
//
// Run boots one machine, takes a checkpoint of it as a host does, and works with machines restored from that: under
// emulation a boot takes seconds. It needs a guest in which flash's agent answers and a shell knows echo, cat, sleep, head
// and redirections.
//
// What is compared is always everything: all pages of memory, all blocks of the disk. An image here is a checkpoint's
// memory or disk put together from the deltas the engine gave, so a change a tracker missed shows as a difference from
// what the machine really holds.
package vmmtest

import (
	"testing"
	"time"

	"flash/blockdelta"
	"flash/vmm"
)

// Options describe the guest.
type Options struct {
	Spec vmm.Spec        // what to boot
	Disk blockdelta.Base // of the machine's disk; nil: 16 MiB of zeros

	// Folder is one in the guest that can be written to; "": /tmp.
	Folder string
	// OnDisk tells that Folder lies on the disk, so that its files must be in the disk's blocks once they are synced.
	OnDisk bool
	// Listen is a script that leaves something listening on TCP port 8080 that says "hello" to each connection.
	// "": ports are published, but nobody is asked there.
	Listen string
	// Kill ends a machine as a crash would; nil: its process is killed.
	Kill func(m vmm.Machine)
	// IdlePages bounds what an idle guest may change between two checkpoints that follow each other; 0: a quarter of memory.
	IdlePages int
	// Limit bounds each operation; 0: two minutes.
	Limit time.Duration
}

// port is where Options.Listen listens.
const port = 8080

// Run tests an engine. The engine is the caller's to close.
func Run(t *testing.T, e vmm.Engine, o Options) {
	if o.Disk == nil {
		o.Disk = newImage(16<<20/blockdelta.BlockBytes, nil)
	}
	if o.Folder == "" {
		o.Folder = "/tmp"
	}
	if o.Limit == 0 {
		o.Limit = 2 * time.Minute
	}
	if o.IdlePages == 0 {
		o.IdlePages = int(o.Spec.MemBytes / blockdelta.BlockBytes / 4)
	}
	s := &suite{engine: e, options: o}
	s.booted = s.boot(t)
	for _, promise := range []struct {
		name string
		keep func(*suite, *testing.T)
	}{
		{"ProbeSaysWhatMachinesAreMadeOf", (*suite).probe},
		{"PauseAndResumeAreIdempotent", (*suite).idempotent},
		{"PausedGuestStandsStill", (*suite).standsStill},
		{"RestoreIsTheSameMachine", (*suite).same},
		{"SourceAnswersAfterItsOwnCheckpoint", (*suite).sourceAnswers},
		{"ChainedCheckpointsLoseNothing", (*suite).chain},
		{"CheckpointBeforeAnyPageIsTouchedIsComplete", (*suite).untouched},
		{"RolledBackChangesAreReportedAgain", (*suite).rollback},
		{"IdleCheckpointIsSmall", (*suite).idle},
		{"RestoresOfOneStateDontLeak", (*suite).diverge},
		{"RepairedSiblingsDiffer", (*suite).siblings},
		{"RunningCommandGoesOnAfterRestore", (*suite).goesOn},
		{"WorkingSetIsAdvice", (*suite).workingSet},
		{"PortsArePublished", (*suite).ports},
		{"OtherKindsOfMachinesAreRefused", (*suite).incompatible},
		{"DamagedStateIsRefused", (*suite).damaged},
		{"CanceledRestoreLeavesNothing", (*suite).canceled},
		{"ShutdownIsTold", (*suite).shutdown},
		{"DeathIsTold", (*suite).death},
		{"CloseLeavesNothing", (*suite).close},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.keep(s, t) })
	}
}
