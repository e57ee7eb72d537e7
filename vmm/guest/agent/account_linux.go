package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// account is whom a command runs as.
type account struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
	home   string
}

// ownAccount is whom this process runs as.
func ownAccount() (account, error) {
	groups, err := unix.Getgroups()
	if err != nil {
		return account{}, fmt.Errorf("ask for the agent's own groups: %w", err)
	}
	who := account{uid: uint32(unix.Getuid()), gid: uint32(unix.Getgid())}
	for _, g := range groups {
		who.groups = append(who.groups, uint32(g))
	}
	return who, nil
}

// isSelf tells whether a command of this account runs as the agent itself.
func (a *agent) isSelf(who account) bool {
	return who.uid == a.self.uid && who.gid == a.self.gid && slices.Equal(who.groups, a.self.groups)
}

// accounts reads the guest's own files; there is no other directory service in here. What it found it knows as long as the
// files stay the same.
type accounts struct {
	passwd, group string

	mu    sync.Mutex // guards the rest
	known map[string]account
	of    [2]fileState // what known was read from
}

// fileState tells a file from one that was changed or replaced.
type fileState struct {
	dev, ino     uint64
	bytes        int64
	mtime, ctime unix.Timespec
}

const (
	maxAccountsKnown = 64
	settledAfter     = time.Second // a file changed not longer ago may change again without looking different
)

func newAccounts(passwd, group string) *accounts {
	return &accounts{passwd: passwd, group: group, known: map[string]account{}}
}

// find looks up a name, or uid[:gid], or name:group. "" is root.
func (a *accounts) find(user string) (account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := [2]fileState{stateOf(a.passwd), stateOf(a.group)}
	if now != a.of || len(a.known) >= maxAccountsKnown {
		clear(a.known)
		a.of = now
	}
	if found, ok := a.known[user]; ok {
		return found, nil
	}
	found, err := a.read(user)
	if err == nil && now[0].settled() && now[1].settled() {
		a.known[user] = found
	}
	return found, err
}

// stateOf is zero for a file that isn't there.
func stateOf(path string) (f fileState) {
	var s unix.Stat_t
	if unix.Stat(path, &s) == nil {
		f = fileState{uint64(s.Dev), s.Ino, s.Size, s.Mtim, s.Ctim}
	}
	return f
}

func (f fileState) settled() bool {
	return f.ino != 0 && time.Since(time.Unix(f.ctime.Unix())).Abs() > settledAfter
}

func (a *accounts) read(user string) (account, error) {
	name, group, hasGroup := strings.Cut(user, ":")
	if name == "" {
		name = "root"
	}
	found, err := a.user(name)
	if err != nil {
		return account{}, err
	}
	if hasGroup {
		gid, err := a.groupID(group)
		if err != nil {
			return account{}, err
		}
		found.gid = gid
	}
	if found.groups, err = a.groupsOf(found); err != nil {
		return account{}, err
	}
	return found, nil
}

// user finds a line of passwd: name:password:uid:gid:comment:home:shell. A number needn't be in it, nor root.
func (a *accounts) user(name string) (account, error) {
	number, err := strconv.ParseUint(name, 10, 32)
	numeric := err == nil
	found := account{name: name, home: "/"}
	ok := false
	err = eachLine(a.passwd, func(f []string) bool {
		if len(f) < 6 || f[0] != name && !(numeric && f[2] == name) {
			return true
		}
		uid, uerr := strconv.ParseUint(f[2], 10, 32)
		gid, gerr := strconv.ParseUint(f[3], 10, 32)
		if uerr != nil || gerr != nil {
			return true
		}
		found = account{name: f[0], uid: uint32(uid), gid: uint32(gid), home: f[5]}
		ok = true
		return false
	})
	switch {
	case err != nil && !os.IsNotExist(err):
		return account{}, err
	case ok:
		if found.home == "" {
			found.home = "/"
		}
		return found, nil
	case numeric:
		found.uid, found.gid = uint32(number), uint32(number)
		return found, nil
	case name == "root":
		found.home = "/root"
		return found, nil
	}
	return account{}, &guest.AgentError{Code: guest.CodeNoUser, Message: fmt.Sprintf("the guest has no user %q", name)}
}

// groupID finds a line of group: name:password:gid:members.
func (a *accounts) groupID(group string) (uint32, error) {
	if gid, err := strconv.ParseUint(group, 10, 32); err == nil {
		return uint32(gid), nil
	}
	gid, ok := uint64(0), false
	err := eachLine(a.group, func(f []string) bool {
		if len(f) >= 3 && f[0] == group {
			var perr error
			gid, perr = strconv.ParseUint(f[2], 10, 32)
			ok = perr == nil
		}
		return !ok
	})
	if err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	if !ok {
		return 0, &guest.AgentError{Code: guest.CodeNoUser, Message: fmt.Sprintf("the guest has no group %q", group)}
	}
	return uint32(gid), nil
}

// groupsOf gives the groups an account is a member of, its own first.
func (a *accounts) groupsOf(who account) ([]uint32, error) {
	groups := []uint32{who.gid}
	err := eachLine(a.group, func(f []string) bool {
		if len(f) < 4 || f[3] == "" {
			return true
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if gid, err := strconv.ParseUint(f[2], 10, 32); member == who.name && err == nil && uint32(gid) != who.gid {
				groups = append(groups, uint32(gid))
			}
		}
		return true
	})
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return groups, nil
}

// eachLine calls f with the fields of each line until it says false.
func eachLine(path string, f func(fields []string) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 0, 1024), 1<<20)
	for lines.Scan() {
		if !f(strings.Split(lines.Text(), ":")) {
			return nil
		}
	}
	return lines.Err()
}
