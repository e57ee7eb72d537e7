package qemu

import (
	"log/slog"
	"time"

	"flash/vmm"
)

// Name is the engine's name in Facts.
const Name = "qemu"

// Layout is the version of the device layout that arguments gives a machine. A state loads only into the layout it was
// saved from, so any change of a device, its address or its order counts this up.
const Layout = "2"

// ChannelName is what the guest finds the agent's port by (/sys/class/virtio-ports/*/name).
const ChannelName = "flash.agent"

// Config is what an engine is made with. The zero value works.
type Config struct {
	Binary   string       // "": qemu-system-x86_64 from PATH
	RunDir   string       // the host's folder of sockets: told to QEMU in its environment, so that leftovers can be found
	Cgroup   string       // the host's name among control groups, nobody else's; "": QEMUs have no limits
	PoolSize int          // waiting processes; 0: 2, negative: none
	Accel    string       // "tcg", "kvm"; "": kvm if it truly works here, else tcg
	Memory   string       // restrictions, joined by commas (see restrictions); "": the best that works here
	Log      *slog.Logger // nil: silent
}

const (
	defaultPoolSize = 2
	maxDisks        = 8
	maxVCPUs        = 64
	minMemBytes     = 32 << 20
	maxMemBytes     = 1 << 40
	memGranule      = 1 << 20 // QEMU rounds memory up to its own granule; whole MiB are never rounded
)

// Deadlines (I9). All are far above what was ever seen (stop 3 ms, state 8 ms, spawn 90 ms) and below a caller's patience.
const (
	callDeadline      = 10 * time.Second // one call to the monitor
	spawnDeadline     = 20 * time.Second // fork to the monitor's first answer, on a loaded machine
	migrationDeadline = 20 * time.Second // state saved or loaded
	probeDeadline     = 15 * time.Second
	shutdownDeadline  = 5 * time.Second // from the guest's shutdown to QEMU's end; then it is killed
)

// shape is what is fixed when a QEMU is started. Comparable: the pool's key.
type shape struct {
	facts    vmm.Facts
	vcpus    int
	memBytes uint64
	disks    int
}
