package qemu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A QEMU of a host that runs as root runs as a user of its own: a number without a name, given to no other process of this
// host. Such a user owns no file, is in no group (but that of /dev/kvm where it opens that), has no capability and gets none
// back; it can't trace or signal anybody, its sisters included. What it needs, it is handed: sockets and boot files as
// descriptors, shared memory and a userfaultfd as package uffd tells, its disks' socket in a folder that its group may enter.
//
// accountRanges are where the numbers come from: the first that this user namespace has. Neither is used by anybody else
// (systemd's "Users, Groups, UIDs and GIDs" lists who uses what).
var accountRanges = []struct{ first, count uint32 }{
	{0x7000_0000, 0x0fff_ffff}, // above all containers' ranges
	{60706, 478},               // what a container with 65,536 users has: between systemd's ranges
}

// accounts gives out users. The zero value gives none: QEMUs run as we do.
type accounts struct {
	first, count uint32
	groups       []uint32
	next         atomic.Uint32
}

// take gives the credentials of the next QEMU; nil: ours. Neighbours in time never share a user, and hosts side by side
// begin at random places.
func (a *accounts) take() *syscall.Credential {
	if a == nil || a.count == 0 {
		return nil
	}
	id := a.first + a.next.Add(1)%a.count
	return &syscall.Credential{Uid: id, Gid: id, Groups: a.groups}
}

// newAccounts finds out whether QEMU can run as users of its own here, with this accelerator, and says why not. Root alone
// can change users; for anybody else QEMU runs as they do, and nothing is missing.
func newAccounts(ctx context.Context, binary, accel string, uffdForOthers string) (*accounts, string) {
	if os.Geteuid() != 0 {
		return nil, ""
	}
	if uffdForOthers != "" {
		return nil, uffdForOthers
	}
	a := &accounts{}
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, err.Error()
	}
	gids, err := os.ReadFile("/proc/self/gid_map")
	if err != nil {
		return nil, err.Error()
	}
	for _, r := range accountRanges {
		if mapsAll(string(uids), r.first, r.count) && mapsAll(string(gids), r.first, r.count) {
			a.first, a.count = r.first, r.count
			break
		}
	}
	if a.count == 0 {
		return nil, "this user namespace has no users to spare"
	}
	a.next.Store(rand.Uint32N(a.count))
	if accel == "kvm" {
		if a.groups, err = kvmGroups("/dev/kvm"); err != nil {
			return nil, err.Error()
		}
	}
	cmd := exec.CommandContext(ctx, binary, "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.take()}
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return nil, fmt.Sprintf("%s doesn't run as another user: %v %s", binary, err, line)
	}
	return a, ""
}

// mapsAll tells whether a uid_map or gid_map has a whole range. Each line is: first here, first outside, count.
func mapsAll(text string, first, count uint32) bool {
	for line := range strings.Lines(text) {
		var here, outside, n uint64
		if _, err := fmt.Sscan(line, &here, &outside, &n); err == nil && uint64(first) >= here && uint64(first)+uint64(count) <= here+n {
			return true
		}
	}
	return false
}

// kvmGroups gives the groups a user needs to open the device.
func kvmGroups(device string) ([]uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", device, err)
	}
	const all, group = 0o006, 0o060
	switch {
	case st.Mode&all == all:
		return nil, nil
	case st.Mode&group == group && st.Gid != 0:
		return []uint32{st.Gid}, nil
	}
	return nil, fmt.Errorf("%s is open to root alone (mode %#o, group %d); chgrp kvm %s and chmod 660 give it to a group", device, st.Mode&0o777, st.Gid, device)
}

// own gives a file or folder to root and a QEMU's group, which may use it as mode says. user nil: it stays as it is.
func own(path string, user *syscall.Credential, mode os.FileMode) error {
	if user == nil {
		return nil
	}
	if err := os.Chown(path, 0, int(user.Gid)); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// renounce takes from this thread, and from every process it will start, what no QEMU is to get again: privilege by a
// program's file, and, if they get a user of their own, every capability. Our own capabilities stay.
func renounce(capabilities bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privilege by programs' files: %w", err)
	}
	if !capabilities {
		return nil
	}
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		// An older kernel has fewer; and where we may not, the first lock holds.
		if err != nil && err != unix.EINVAL && err != unix.EPERM {
			return fmt.Errorf("give up capability %d: %w", capability, err)
		}
	}
	return nil
}
