package host

import (
	"time"

	"flash/vmm"
)

// Deadlines bound the waits on a guest or an engine (I9). A zero one is the default.
type Deadlines struct {
	Boot    time.Duration // a booted guest's first answer
	Answer  time.Duration // a restored guest's first answer; cold memory under emulation is slow
	Control time.Duration // freeze, thaw, repair
	Engine  time.Duration // one step of the engine
	Freeze  time.Duration // after which an abandoned guest thaws by itself
}

func (d Deadlines) orDefaults() Deadlines {
	for _, one := range []struct {
		d        *time.Duration
		standard time.Duration
	}{
		{&d.Boot, vmm.BootDeadline}, {&d.Answer, 20 * time.Second}, {&d.Control, 15 * time.Second},
		{&d.Engine, 60 * time.Second}, {&d.Freeze, 60 * time.Second},
	} {
		if *one.d == 0 {
			*one.d = one.standard
		}
	}
	return d
}

// calm is how long a guest that didn't answer a freeze is asked to thaw: it may have heard, and only be slow.
func (d Deadlines) calm() time.Duration { return d.Control / 5 }
