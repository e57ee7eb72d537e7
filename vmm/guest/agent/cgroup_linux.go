package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const killLimit = 10 * time.Second // for killed processes to be gone

// groups are the control groups of the workload, one for each exec.
type groups struct {
	root  string // /sys/fs/cgroup/flash
	watch *watcher
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
	return &groups{root: root, watch: w}, nil
}

func (g *groups) path(id string) string { return filepath.Join(g.root, id) }

// open makes the group if there is none and opens it for a process to be born in.
func (g *groups) open(id string) (fd int, err error) {
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
	return err == nil || err == unix.ENOENT
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
