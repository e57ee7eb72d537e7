package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// errStopped: the machine, or what waited, has ended.
var errStopped = errors.New("stopped")

// who takes a step.
type mode int

const (
	agent    mode = iota // goes on while the workload is frozen
	workload             // doesn't
)

// cpu is the guest's one processor: whoever has its token takes a step.
//
//	         resume
//	paused ─────────▶ running      each also: hung, frozen; ended for good
//	   ▲────pause─────────┘
type cpu struct {
	token chan struct{} // cap 1; whoever has put one in may use the rest
	ended chan struct{} // closed when the machine has ended

	running bool
	hung    bool
	frozen  bool
	changed chan struct{} // closed and made anew when one of these changes
	steps   uint64
	now     func() time.Time // the host's clock
	before  time.Duration    // monotonic time until resumed
	resumed time.Time        // host time of the last resume, while running
	boot    time.Time        // wall clock at monotonic 0
}

func newCPU(now func() time.Time) *cpu {
	return &cpu{token: make(chan struct{}, 1), ended: make(chan struct{}), changed: make(chan struct{}), now: now, boot: now()}
}

// take takes the token.
func (c *cpu) take(ctx context.Context) error {
	select {
	case c.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cpu) give() { <-c.token }

// step waits until the guest may act, and acts. It gives errStopped when the machine or stop ends first.
func (c *cpu) step(stop <-chan struct{}, m mode, act func() error) error {
	for {
		select {
		case <-c.ended:
			return errStopped
		case <-stop:
			return errStopped
		case c.token <- struct{}{}:
		}
		if c.running && !c.hung && !(m == workload && c.frozen) && !closed(c.ended) && !closed(stop) {
			c.steps++
			err := act()
			c.give()
			return err
		}
		changed := c.changed
		c.give()
		select {
		case <-changed:
		case <-c.ended:
		case <-stop:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// set changes the processor's condition. Precondition: the token is held, as for all that follow.
func (c *cpu) set(change func()) {
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// monotonic is the guest's time since its boot, which stands still while it is paused.
func (c *cpu) monotonic() time.Duration {
	if c.running {
		return c.before + c.now().Sub(c.resumed)
	}
	return c.before
}

func (c *cpu) wall() time.Time       { return c.boot.Add(c.monotonic()) }
func (c *cpu) setWall(t time.Time)   { c.boot = t.Add(-c.monotonic()) }
func (c *cpu) resume()               { c.set(func() { c.resumed, c.running = c.now(), true }) }
func (c *cpu) pause()                { c.before = c.monotonic(); c.set(func() { c.running = false }) }
func (c *cpu) setFrozen(frozen bool) { c.set(func() { c.frozen = frozen }) }

// cpuState is what a state's Data holds.
type cpuState struct {
	Version   int           `json:"version"`
	Steps     uint64        `json:"steps"`
	Monotonic time.Duration `json:"monotonic_nanos"`
	Boot      time.Time     `json:"boot"` // wall clock at monotonic 0
	Ran       bool          `json:"ran"`  // false: the guest has never run, it boots at Resume
}

const stateVersion = 1

func (c *cpu) save(ran bool) ([]byte, error) {
	return json.Marshal(cpuState{stateVersion, c.steps, c.before, c.boot.Round(0).UTC(), ran})
}

func (c *cpu) load(data []byte) (ran bool, err error) {
	var s cpuState
	if err := json.Unmarshal(data, &s); err != nil {
		return false, fmt.Errorf("the CPU state can't be read: %w", err)
	}
	if s.Version != stateVersion {
		return false, fmt.Errorf("the CPU state has version %d, not %d", s.Version, stateVersion)
	}
	c.steps, c.before, c.boot = s.Steps, s.Monotonic, s.Boot
	return s.Ran, nil
}
