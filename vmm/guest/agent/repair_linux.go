package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// Repair puts right what a restore has made wrong. The first failure ends it, and the workload stays as frozen as it is.
//
// The generator comes first, since everything later may draw from it; the clock comes as late as the hooks allow.
func (a *agent) Repair(ctx context.Context, r guest.Repair, received time.Time) error {
	a.repairs.Lock()
	defer a.repairs.Unlock()
	known := a.freezer.takeCharge()
	if r.Generation != "" || len(r.Seed) > 0 { // a restored guest never goes on without a seed; one that was merely paused needs none
		if err := a.random.reseed(r.Seed); err != nil {
			return err
		}
	}
	if r.Generation != "" {
		if err := known.writeGeneration(r.Generation + "\n"); err != nil {
			return fmt.Errorf("write the generation: %w", err)
		}
	}
	if r.Hostname != "" && (known == nil || known.hostname != r.Hostname) {
		if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
			return fmt.Errorf("set the host name to %s: %w", r.Hostname, err)
		}
	}
	if r.MAC != "" {
		if err := setMAC(a.addresses, ethernet, r.MAC); err != nil {
			return fmt.Errorf("give %s the address %s: %w", ethernet, r.MAC, err)
		}
	}
	if !r.Now.IsZero() {
		if err := setClock(r.Now.Add(time.Since(received))); err != nil {
			return err
		}
	}
	if r.Hooks && (known == nil || known.hooks) {
		if err := a.runHooks(ctx, hooksDir, r); err != nil {
			return err
		}
	}
	if r.Thaw {
		return a.freezer.thaw(ctx)
	}
	a.freezer.giveBack()
	return nil
}

func setClock(now time.Time) error {
	ts := unix.NsecToTimespec(now.UnixNano())
	if err := quickSetClock(&ts); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// writeAtomically makes a file that is there whole or not at all, by plain system calls: right after a restore every instruction of a guest under emulation is
// translated for the first time, and package os brings thousands.
func writeAtomically(path, text string) error {
	tmp := path + ".new"
	fd, err := unix.Open(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	n, err := unix.Write(fd, []byte(text))
	if err == nil && n != len(text) {
		err = unix.ENOSPC
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return unix.Rename(tmp, path)
}

// hostname is the guest's present name.
func hostname() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return strings.TrimRight(string(u.Nodename[:]), "\x00")
}
