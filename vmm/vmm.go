// Package vmm is the contract between the host and whatever runs a machine. It holds no engine.
//
// Terms: an engine makes machines; a machine is one running or paused guest. Its state is what is neither memory nor
// disk: CPUs and devices. Facts are the words a snapshot keeps about the machine it was taken from, by which another
// engine, or another version of this one, tells whether it can restore it.
package vmm

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"flash/blockdelta"
	"flash/memtrack"
)

// Spec is what a machine is made of. Two machines with the same Spec are the same hardware to a guest, but for MAC.
type Spec struct {
	VCPUs    int
	MemBytes uint64
	MAC      string // "52:54:00:…"
	Kernel   string // files; used by Boot only
	Initrd   string
	Cmdline  string // added to what the engine itself needs
	Facts    Facts  // zero for a new machine: the engine's own choice; else the machine to be the same as
}

// Facts is what decides whether a state can be loaded. Every field is compared; missing is an error (hazards: hosts that differ).
type Facts struct {
	Engine      string `json:"engine"`       // "qemu"
	Version     string `json:"version"`      // the engine's, e.g. "7.2.19"
	MachineType string `json:"machine_type"` // versioned, e.g. "pc-q35-7.2"
	CPU         string `json:"cpu"`          // a fixed model
	Accel       string `json:"accel"`        // "tcg", "kvm"
	Layout      string `json:"layout"`       // version of the device layout the engine gives a machine
}

// Port is a TCP port of the guest reachable at a loopback port of the host.
type Port struct {
	Host  int `json:"host"` // 0: the engine chooses
	Guest int `json:"guest"`
}

// Disk is one disk of a machine.
type Disk struct {
	Name    string // "disk0"
	Overlay *blockdelta.Overlay
}

// Attach is what the host plugs into a machine. The overlays stay the caller's to close, after the machine.
type Attach struct {
	Dir     string // a folder of this machine's own for sockets and logs; made if absent, short enough for a unix socket
	Disks   []Disk
	Ports   []Port
	Console string // file the guest's console is appended to
	Scratch string // folder for copies of changed pages that don't fit into memory; "": all have to

	// For Restore only.
	Memory     memtrack.Source // where the guest's memory comes from
	MemoryKey  string          // machines restored from the same key may share memory; the snapshot's id
	WorkingSet []uint64        // pages to bring in before the guest runs
}

// State is a machine's CPUs and devices at one instant.
type State struct {
	Data  []byte
	Facts Facts
}

// Capabilities is what a probe found, each with a reason where something is missing.
type Capabilities struct {
	Facts     Facts
	Tracker   string            // "pagemap-scan", "soft-dirty", "hash-compare"
	LazyPager bool              // absent pages come in when touched
	Shared    bool              // machines of one snapshot share memory
	OwnUser   bool              // each machine's process has a user of its own; without a reason where nobody could give it one
	Limits    []string          // what of each machine's process is bounded: "memory", "pids", "cpu"
	Reasons   map[string]string // capability → why it isn't there
}

// Engine makes machines. Safe for concurrent use.
type Engine interface {
	Name() string
	// Probe finds out, within ctx, what this host can do. The answer is remembered.
	Probe(ctx context.Context) (Capabilities, error)
	// CanRestore says in one sentence why a state with these facts can't be loaded here; nil when it can.
	CanRestore(ctx context.Context, f Facts) error
	// Boot gives a paused machine that will start from its kernel at Resume.
	Boot(ctx context.Context, s Spec, a Attach) (Machine, error)
	// Restore gives a paused machine that will go on from st at Resume.
	Restore(ctx context.Context, s Spec, a Attach, st State) (Machine, error)
	// Close ends waiting processes. Machines must have been closed.
	Close() error
}

// Machine is one guest. Pause, Resume and SaveState are called by one goroutine at a time.
type Machine interface {
	// Pause stops the CPUs and drains disk requests.
	Pause(ctx context.Context) error
	// Resume lets a paused machine go on; also after SaveState.
	Resume(ctx context.Context) error
	// SaveState gives the state of a paused machine. It may run beside the tracker's Cut; memory and state are one instant only
	// if the tracker has nothing pending after both.
	SaveState(ctx context.Context) (State, error)
	Tracker() memtrack.Tracker
	// Memory reads guest memory, bringing absent pages in. For hashing and tests.
	Memory() memtrack.Memory
	// Channel is the byte stream to the guest's agent. One reader and one writer at a time. It must be neither read nor written
	// between Pause and Resume. The same stream goes on over pauses; it ends with the machine.
	Channel() net.Conn
	// Touched gives the pages brought in since Restore, in order of first touch: the working set. nil after Boot.
	Touched() []uint64
	// Used tells which of some pages of a running machine, such as those of Attach.WorkingSet, it has touched, in the order
	// given. known is false where that can't be told.
	Used(pages []uint64) (used []uint64, known bool)
	// AddPort publishes a port while the machine runs and says which host port it got.
	AddPort(ctx context.Context, p Port) (Port, error)
	Ports() []Port
	// Done is closed when the guest has ended for whatever reason; Exit then says why.
	Done() <-chan struct{}
	Exit() Exit
	// Process tells where the machine lives, for ps and doctor. Zero for an in-process machine.
	Process() Process
	// Close ends the machine and leaves nothing behind. Ending twice is harmless.
	io.Closer
}

// Exit is how a guest ended.
type Exit struct {
	Reason string // "closed", "guest shutdown", "guest panic", "killed", "memory lost"
	Detail string // the last line of the engine or the console
	Err    error
}

// Process identifies an operating-system process beyond the reuse of its number.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // start time in clock ticks since boot, field 22 of /proc/PID/stat
	Exe   string `json:"exe"`
}

// Kinds of failure a caller acts on.
var (
	ErrUnsupported  = errors.New("not supported here")
	ErrIncompatible = errors.New("the state was taken on another kind of machine")
	ErrGone         = errors.New("the machine has ended")
	// ErrUnsettled: a device wrote to memory after the cut. The state is of no use; the same can be tried again.
	ErrUnsettled = errors.New("memory changed after the cut")
)

// BootDeadline bounds the time from Resume of a booted machine to its agent's first answer under emulation.
const BootDeadline = 120 * time.Second
