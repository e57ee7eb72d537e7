package fake

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"flash/memtrack"
	"flash/vmm/guest"
)

// Where things are in guest memory; see the package comment.
const (
	memoryMagic   = "FAKEMEM\x01"
	CounterOffset = 8 // of the counter of steps, 8 bytes little-endian
	randomOffset  = 16
	randomBytes   = 32
	kernelOffset  = memtrack.PageBytes
	minMemBytes   = 1 << 20
	maxLogBytes   = 1 << 20 // of all processes' output that is remembered
	stallPause    = 5 * time.Millisecond
)

// kernel is what the guest remembers. It is written to memory after each step that may have changed it.
type kernel struct {
	BootID     string        `json:"boot_id"`
	Hostname   string        `json:"hostname"`
	MAC        string        `json:"mac"`
	Generation string        `json:"generation"`
	Frozen     bool          `json:"frozen"`
	ThawAt     time.Duration `json:"thaw_at"` // monotonic; the agent thaws by itself then
	Processes  []*record     `json:"processes"`
}

// record is one command the guest knows, running or ended.
type record struct {
	Request   guest.ExecRequest `json:"request"`
	Group     string            `json:"group"` // the exec it belongs to: its own ID, or the one that put it into the background
	Frames    []*frame          `json:"frames"`
	WakeAt    time.Duration     `json:"wake_at"` // monotonic; 0: not sleeping
	InputDone bool              `json:"input_done"`
	Out       []byte            `json:"out"`
	Err       []byte            `json:"err"`
	Exit      *guest.ExitStatus `json:"exit"`
}

// ram is guest memory as the guest uses it. Precondition of all methods: the CPU token is held.
type ram struct {
	*memtrack.Buffer
	ended  <-chan struct{}
	stored []byte // the kernel's record as it lies in memory; nil: not looked at yet
}

// load and store are the guest's own. A page whose source fails is tried again until it comes or the machine ends: the
// guest stalls, it never sees zeros.
func (r *ram) load(p []byte, off uint64) error {
	return r.access(func() error { _, err := r.ReadAt(p, int64(off)); return err })
}

func (r *ram) store(p []byte, off uint64) error {
	return r.access(func() error { _, err := r.WriteAt(p, int64(off)); return err })
}

func (r *ram) access(try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-r.ended:
			return errStopped
		case <-time.After(stallPause):
		}
	}
}

func (r *ram) bytes() uint64 { return r.Pages() * memtrack.PageBytes }

// kernelEnd is where scratch begins.
func (r *ram) kernelEnd() uint64 { return r.bytes() / 4 * 3 / memtrack.PageBytes * memtrack.PageBytes }

// count adds one to the counter of steps.
func (r *ram) count() error {
	var p [8]byte
	if err := r.load(p[:], CounterOffset); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(p[:], binary.LittleEndian.Uint64(p[:])+1)
	return r.store(p[:], CounterOffset)
}

func (r *ram) counter() (uint64, error) {
	var p [8]byte
	err := r.load(p[:], CounterOffset)
	return binary.LittleEndian.Uint64(p[:]), err
}

// mix stirs bytes into the random generator.
func (r *ram) mix(seed []byte) error {
	var state [randomBytes]byte
	if err := r.load(state[:], randomOffset); err != nil {
		return err
	}
	state = sha256.Sum256(append(append([]byte("mix"), state[:]...), seed...))
	return r.store(state[:], randomOffset)
}

func (r *ram) seeded() (bool, error) {
	var state [randomBytes]byte
	err := r.load(state[:], randomOffset)
	return state != [randomBytes]byte{}, err
}

// random fills p and moves the generator on.
func (r *ram) random(p []byte) error {
	var state [randomBytes]byte
	for len(p) > 0 {
		if err := r.load(state[:], randomOffset); err != nil {
			return err
		}
		out := sha256.Sum256(append([]byte("out"), state[:]...))
		p = p[copy(p, out[:]):]
		state = sha256.Sum256(append([]byte("next"), state[:]...))
		if err := r.store(state[:], randomOffset); err != nil {
			return err
		}
	}
	return nil
}

// loadKernel reads what the guest remembered when it was saved.
func (r *ram) loadKernel() (*kernel, error) {
	magic := make([]byte, len(memoryMagic))
	if err := r.load(magic, 0); err != nil {
		return nil, err
	}
	var length [4]byte
	if err := r.load(length[:], kernelOffset); err != nil {
		return nil, err
	}
	n := uint64(binary.LittleEndian.Uint32(length[:]))
	if string(magic) != memoryMagic || kernelOffset+4+n > r.kernelEnd() {
		return nil, fmt.Errorf("guest memory begins with %q and %d bytes of kernel: it isn't a fake guest's", magic, n)
	}
	r.stored = make([]byte, n)
	if err := r.load(r.stored, kernelOffset+4); err != nil {
		return nil, err
	}
	var k kernel
	if err := json.Unmarshal(r.stored, &k); err != nil {
		return nil, fmt.Errorf("the kernel's record in guest memory can't be read: %w", err)
	}
	return &k, nil
}

// storeKernel writes what has changed, page by page: a step that changed little dirties little.
func (r *ram) storeKernel(k *kernel) error {
	p, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if bytes.Equal(p, r.stored) {
		return nil
	}
	if kernelOffset+4+uint64(len(p)) > r.kernelEnd() {
		return fmt.Errorf("the guest is out of memory: its processes' output and scripts take %d bytes", len(p))
	}
	if len(p) != len(r.stored) {
		if err := r.store(binary.LittleEndian.AppendUint32(nil, uint32(len(p))), kernelOffset); err != nil {
			return err
		}
	}
	for at := 0; at < len(p); {
		end := min(len(p), at+memtrack.PageBytes-(at+4)%memtrack.PageBytes)
		if end > len(r.stored) || !bytes.Equal(p[at:end], r.stored[at:end]) {
			if err := r.store(p[at:end], kernelOffset+4+uint64(at)); err != nil {
				return err
			}
		}
		at = end
	}
	r.stored = p
	return nil
}
