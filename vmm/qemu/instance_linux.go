package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"flash/vmm"
)

// instance is one QEMU with its three streams, before it is a machine: booting or waiting for a state.
type instance struct {
	*process
	shape   shape
	user    *syscall.Credential // whom it runs as; nil: as we do
	qmp     *monitor
	console *net.UnixConn
	channel *net.UnixConn
	hears   atomic.Pointer[func(event)] // who hears events; nobody while it waits
}

// capabilities of every migration, ours going out as well as coming in: RAM, being shared, is left out of the stream, and
// its end is told by an event.
var migrationCapabilities = map[string]any{"capabilities": []map[string]any{
	{"capability": "x-ignore-shared", "state": true},
	{"capability": "events", "state": true},
}}

// spawn starts a QEMU and waits until its monitor answers. When it fails, nothing is left.
func (e *Engine) spawn(ctx context.Context, s shape, boot *bootFrom) (_ *instance, err error) {
	ctx, cancel := context.WithTimeout(ctx, spawnDeadline)
	defer cancel()
	in := &instance{shape: s}
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	talk, err := in.start(e, boot)
	if err != nil {
		return nil, err
	}
	pid := in.id.PID
	in.qmp = newMonitor(talk, e.callDeadline, func() string { return describe(pid) }, in.hear)
	if err := in.qmp.handshake(ctx); err != nil {
		return nil, in.blame(err)
	}
	if in.qmp.version != s.facts.Version {
		return nil, fmt.Errorf("%s is now version %s, and was %s when it was probed: it was replaced meanwhile; start again with the new one: %w",
			e.binary, in.qmp.version, s.facts.Version, vmm.ErrIncompatible)
	}
	if err := in.qmp.call(ctx, "migrate-set-capabilities", migrationCapabilities, nil); err != nil {
		return nil, in.blame(err)
	}
	return in, nil
}

// start makes the process with its three streams and gives that of the monitor. The child's ends are closed here as soon as
// it has them: else the end of the child would not be the end of the streams.
func (in *instance) start(e *Engine, boot *bootFrom) (talk *net.UnixConn, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil && talk != nil {
			talk.Close()
		}
	}()
	for _, stream := range []struct {
		name string
		ours **net.UnixConn
	}{{"monitor", &talk}, {"console", &in.console}, {"agent channel", &in.channel}} { // monitorFD, consoleFD, channelFD
		conn, file, err := socketPair(stream.name)
		if err != nil {
			return talk, err
		}
		*stream.ours, theirs = conn, append(theirs, file)
	}
	inherited := theirs
	if boot != nil {
		inherited = append(inherited[:len(theirs):len(theirs)], boot.files...) // from bootFD on; the caller closes them
	}
	users, groups := e.confined()
	group, err := groups.make(in.shape)
	if err != nil {
		return talk, err
	}
	in.user = users.take()
	in.process, err = e.spawner.start(program{binary: e.binary, args: arguments(in.shape, boot), files: inherited, user: in.user, run: e.runDir, group: group})
	return talk, err
}

func (in *instance) hear(e event) {
	if f := in.hears.Load(); f != nil {
		(*f)(e)
	}
}

// blame adds what QEMU said on its standard error to an error that may be its consequence: it often ends without a word on
// the monitor. The end of the process comes right after that of the monitor, or not at all.
func (in *instance) blame(err error) error {
	if !errors.Is(err, vmm.ErrGone) {
		return err
	}
	waitFor(in.ended, shutdownDeadline)
	// Its words may come a moment after its end is seen: another goroutine copies them.
	for deadline := time.Now().Add(lastWordsLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if line := in.said.lastLine(); line != "" {
			return fmt.Errorf("%w: QEMU's last words: %q", err, line)
		}
	}
	return err
}

// lastWordsLimit is for one that ended without a word, and for the copying of those of another on a loaded machine.
const lastWordsLimit = 200 * time.Millisecond

// close ends the process and its streams, whatever of them is there. For an instance that hasn't become a machine.
func (in *instance) close() {
	if in.process != nil {
		in.process.end()
	}
	if in.qmp != nil {
		in.qmp.close()
	}
	for _, c := range []*net.UnixConn{in.console, in.channel} {
		if c != nil {
			c.Close()
		}
	}
}

// waitFor waits for c, at most for d, and says whether it came.
func waitFor(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
