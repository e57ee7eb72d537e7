package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const killLimit = 10 * time.Second // for killed processes to be gone

// groups are the control groups of the workload, one for each exec. Making one takes long right after a restore, so one is
// made ahead, a spare, which keeps its name when an exec gets it: a control group can't be renamed.
type groups struct {
	root  string // /sys/fs/cgroup/flash
	watch *watcher

	mu     sync.Mutex        // guards the rest
	named  map[string]string // folders of execs whose group was a spare
	spare  string            // its folder; "": there is none
	fd     int               // the spare, open
	spares int               // counts them
}

// newGroups makes the workload's group in the unified hierarchy.
func newGroups(w *watcher) (*groups, error) {
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(mount, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return newGroupsAt(filepath.Join(mount, "flash"), w)
		}
	}
	return nil, errors.New("there is no unified control group hierarchy below /sys/fs/cgroup")
}

func newGroupsAt(root string, w *watcher) (*groups, error) {
	if err := os.Mkdir(root, 0o755); err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("make the workload's control group: %w", err)
	}
	return &groups{root: root, watch: w, named: map[string]string{}}, nil
}

func (g *groups) path(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if folder := g.named[id]; folder != "" {
		return folder
	}
	return g.root + "/" + id
}

// makeSpare makes a group for the exec to come, if there is none. One that can't be made is made when it is needed, and
// then the exec fails with the reason. Its name can't be an exec's id.
func (g *groups) makeSpare() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spare != "" {
		return
	}
	g.spares++
	folder := g.root + "/." + strconv.Itoa(g.spares)
	if unix.Mkdir(folder, 0o755) != nil {
		return
	}
	fd, err := unix.Open(folder, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Rmdir(folder)
		return
	}
	g.spare, g.fd = folder, fd
}

// takeSpare gives the spare to an exec; -1 when there is none.
func (g *groups) takeSpare(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spare == "" || g.named[id] != "" {
		return -1
	}
	g.named[id], g.spare = g.spare, ""
	return g.fd
}

// open gives an exec a group and opens it for a process to be born in.
func (g *groups) open(id string) (fd int, err error) {
	if fd := g.takeSpare(id); fd >= 0 {
		return fd, nil
	}
	if err := unix.Mkdir(g.path(id), 0o755); err != nil && err != unix.EEXIST {
		return -1, fmt.Errorf("make control group %s: %w", g.path(id), err)
	}
	fd, err = unix.Open(g.path(id), unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open control group %s: %w", g.path(id), err)
	}
	return fd, nil
}

// join puts a process into a group, for kernels without clone3.
func (g *groups) join(id string, pid int) error {
	return os.WriteFile(filepath.Join(g.path(id), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// exists tells whether an exec left anything behind.
func (g *groups) exists(id string) bool {
	_, err := os.Stat(g.path(id))
	return err == nil
}

// kill kills everything in a group and waits until it is gone, and the group with it.
func (g *groups) kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	path := g.path(id)
	err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	if os.IsNotExist(err) {
		if !g.exists(id) {
			return nil
		}
		err = g.killEach(ctx, path) // before Linux 5.14
	}
	if err != nil {
		return fmt.Errorf("kill control group %s: %w", path, err)
	}
	if err := g.watch.wait(ctx, path, "populated", "0"); err != nil {
		return err
	}
	g.remove(id)
	g.watch.poke()
	return nil
}

// killEach kills until none is left. Frozen processes can't fork, and die all the same.
func (g *groups) killEach(ctx context.Context, path string) error {
	if err := os.WriteFile(filepath.Join(path, "cgroup.freeze"), []byte("1"), 0); err != nil {
		return err
	}
	if err := g.watch.wait(ctx, path, "frozen", "1"); err != nil {
		return err
	}
	return filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		pids, err := os.ReadFile(filepath.Join(p, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, word := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
					return err
				}
			}
		}
		return nil
	})
}

// remove removes a group and the ones inside it, if no process is left. It tells whether the group is gone.
func (g *groups) remove(id string) bool {
	path := g.path(id)
	err := unix.Rmdir(path)
	if err == unix.EBUSY || err == unix.ENOTEMPTY {
		if ok, err := eventIs(filepath.Join(path, "cgroup.events"), "populated", "0"); !ok || err != nil {
			return false
		}
		removeInner(path) // groups the command made itself
		err = unix.Rmdir(path)
	}
	gone := err == nil || err == unix.ENOENT
	if gone {
		g.mu.Lock()
		delete(g.named, id)
		g.mu.Unlock()
	}
	return gone
}

func removeInner(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeInner(filepath.Join(path, e.Name()))
			unix.Rmdir(filepath.Join(path, e.Name()))
		}
	}
}

// removeWhenEmpty waits for background processes to end and removes the group then.
func (g *groups) removeWhenEmpty(id string) {
	for !g.remove(id) {
		if err := g.watch.wait(context.Background(), g.path(id), "populated", "0"); err != nil {
			say("wait for exec %s to be empty: %v", id, err)
			return
		}
	}
}
