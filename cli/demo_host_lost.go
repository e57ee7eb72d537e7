package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"flash/cas/bucket/buckettest"
	"flash/cli/httpapi"
	"flash/store/offsite"
	"flash/vmm/host"
)

const (
	// The counter is a process that only counts, in memory; asked, it says its own random name and how far it is.
	scriptCounter = `mkdir -p /work && cd /work && mkfifo ask answer || exit 1
sh -c 'me=$(cat /proc/sys/kernel/random/uuid); n=0; while read q < ask; do n=$((n+1)); echo "$me $n" > answer; done' </dev/null >/dev/null 2>&1 &
timeout 20 sh -c 'echo what > ask; cat answer'`
	scriptCount     = `cd /work && timeout 20 sh -c 'echo what > ask; cat answer'`
	scriptReport    = `echo 'results of a long night' > /work/report && sync && md5sum /work/report`
	scriptSpoil     = `echo spoiled > /work/report`
	scriptReportSum = `md5sum /work/report`

	hostWait = time.Minute // for a daemon that was killed to be gone
)

// hostLost is how far the story is.
type hostLost struct {
	*stage
	dir     string // everything the play makes
	server  *buckettest.Server
	vm      string
	homes   map[string]string
	hosts   map[string]*httpapi.Client
	pids    map[string]int
	counter string // its name
	counted int
	sum     string // of the report
	good    int    // the checkpoint before the report was spoiled
}

// playHostLost plays: a VM works on host A and follows to S3; host A is gone, with its disk; host B, which has nothing,
// forks it from before its mistake, and then brings it back under its own name.
func playHostLost(ctx context.Context, _ host.API, s *stage) (err error) {
	t := &hostLost{stage: s, vm: s.id, homes: map[string]string{}, hosts: map[string]*httpapi.Client{}, pids: map[string]int{}}
	if t.dir, err = os.MkdirTemp("", "flash-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for _, act := range []func(context.Context) error{t.storage, t.work, t.follow, t.disaster, t.forkElsewhere, t.wakeElsewhere} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts a host: a daemon with a home of its own, as another machine would have.
func (t *hostLost) open(ctx context.Context, name string) error {
	t.homes[name] = filepath.Join(t.dir, name)
	c := httpapi.NewClient(socketPath(t.homes[name]))
	if err := startDaemon(ctx, t.homes[name], c); err != nil {
		return err
	}
	t.hosts[name], t.api = c, c
	info, err := c.Info(ctx)
	t.pids[name] = info.PID
	return err
}

// close ends the hosts and the server, and removes all they had.
func (t *hostLost) close() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), demoCleanTimeout)
	defer cancel()
	for name, c := range t.hosts {
		if t.pids[name] == 0 {
			continue
		}
		for _, id := range t.vms { // its present needn't be saved
			if err := c.Remove(ctx, host.RemoveRequest{ID: id, Force: true}); err != nil && httpapi.CodeOf(err) != host.CodeVMNotFound {
				errs = append(errs, err)
			}
		}
		errs = append(errs, c.Shutdown(ctx), awaitExit(ctx, t.homes[name]), c.Close())
	}
	t.vms = nil
	if t.server != nil {
		t.server.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(t.dir))...)
}

// awaitExit waits until no daemon has the home.
func awaitExit(ctx context.Context, home string) error {
	unlock, err := lockFile(ctx, filepath.Join(home, "daemon.lock"))
	if err == nil {
		unlock()
	}
	return err
}

func (t *hostLost) storage(ctx context.Context) error {
	return t.step("start an S3 server on this machine", func() (found string, err error) {
		if err := os.Mkdir(filepath.Join(t.dir, "s3"), 0o700); err != nil {
			return "", err
		}
		t.server, err = buckettest.Start(ctx, filepath.Join(t.dir, "s3"))
		if err != nil {
			return "", err
		}
		return t.server.Endpoint, nil
	})
}

// remote makes the bucket known to a host, encrypted: what leaves it tells nobody anything.
func (t *hostLost) remote(ctx context.Context) error {
	_, err := t.api.AddRemote(ctx, host.AddRemoteRequest{
		RemoteSpec:    host.RemoteSpec{Name: "far", URL: "s3://" + t.server.Bucket + "/demo", Endpoint: t.server.Endpoint, Region: "us-east-1", Sealed: true},
		RemoteSecrets: host.RemoteSecrets{AccessKey: t.server.AccessKey, SecretKey: t.server.SecretKey, Passphrase: "correct horse battery staple"},
	})
	return err
}

func (t *hostLost) work(ctx context.Context) error {
	if err := t.step("host A: a machine with nothing but flash", func() (string, error) { return "", t.open(ctx, "a") }); err != nil {
		return err
	}
	if err := t.needBundle(ctx); err != nil {
		return err
	}
	if err := t.step("host A: start a VM that saves itself before every command", func() (string, error) {
		t.vms = append(t.vms, t.vm)
		_, err := t.api.Create(ctx, host.CreateRequest{ID: t.vm, Bundle: demoBundle, Checkpoints: true})
		return "", err
	}); err != nil {
		return err
	}
	if err := t.step("… and a process in it that counts in memory", func() (string, error) { return t.count(ctx, t.vm, scriptCounter) }); err != nil {
		return err
	}
	if err := t.step("… and a file that took all night", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptReport)
		t.sum = r.out
		return r.out, errors.Join(err, expect(r.Code == 0, "the file is written: %s", r.out))
	}); err != nil {
		return err
	}
	return t.step("… which a careless command spoils", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptSpoil)
		if err == nil {
			err = expect(r.Checkpoint != nil, "the command is an undo point")
		}
		if err == nil {
			t.good = r.Checkpoint.Number
		}
		return fmt.Sprintf("checkpoint %d is from just before", t.good), err
	})
}

// count asks a VM's counter, which must be the one we know and be further than before.
func (t *hostLost) count(ctx context.Context, vm, script string) (string, error) {
	r, err := t.sh(ctx, vm, script)
	if err != nil {
		return r.out, err
	}
	name, number, _ := strings.Cut(r.out, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return r.out, fmt.Errorf("the counter answered %q", r.out)
	}
	if t.counter == "" {
		t.counter = name
	}
	if err := expect(name == t.counter, "it is the same process: %s, not %s", name, t.counter); err != nil {
		return r.out, err
	}
	return r.out, expect(n > 0, "it counts")
}

func (t *hostLost) follow(ctx context.Context) error {
	if err := t.step("host A: let the VM's history follow to S3, encrypted", func() (string, error) {
		if err := t.remote(ctx); err != nil {
			return "", err
		}
		_, err := t.api.ChangeRemote(ctx, host.ChangeRemoteRequest{Name: "far", ReplicateVMs: map[string]bool{t.vm: true}})
		return "", err
	}); err != nil {
		return err
	}
	return t.step("… one more command, and all of it is there by itself", func() (string, error) {
		found, err := t.count(ctx, t.vm, scriptCount)
		if err != nil {
			return found, err
		}
		_, number, _ := strings.Cut(found, " ")
		t.counted, _ = strconv.Atoi(number)
		// A last checkpoint holds the count; then nothing may be missing in the remote.
		last, err := t.api.Checkpoint(ctx, host.CheckpointRequest{ID: t.vm, Label: "the last before the flood"})
		if err != nil {
			return found, err
		}
		ref, err := t.awaitPushed(ctx, last.Number)
		return fmt.Sprintf("%s\n%d checkpoints are there, pushed by %s", found, ref.Checkpoints, ref.Host), err
	})
}

// awaitPushed waits until a checkpoint is in the remote.
func (t *hostLost) awaitPushed(ctx context.Context, number int) (offsite.Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, demoExecTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		refs, err := t.api.RemoteVMs(ctx, "far")
		for _, r := range refs {
			if r.VM == t.vm && r.Newest >= number {
				return r, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return offsite.Ref{}, fmt.Errorf("checkpoint %d isn't in the remote after %s: %w", number, demoExecTimeout, errors.Join(err, ctx.Err()))
		}
	}
}

func (t *hostLost) disaster(ctx context.Context) error {
	return t.step("host A is gone: everything killed at once, its disk wiped", func() (string, error) {
		p, err := os.FindProcess(t.pids["a"])
		if err == nil {
			err = p.Kill()
		}
		t.pids["a"] = 0
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, hostWait)
		defer cancel()
		if err := awaitExit(ctx, t.homes["a"]); err != nil {
			return "", err
		}
		return "", errors.Join(t.hosts["a"].Close(), os.RemoveAll(t.homes["a"]))
	})
}

func (t *hostLost) forkElsewhere(ctx context.Context) error {
	if err := t.step("host B: another machine with nothing but flash and the passphrase", func() (string, error) {
		if err := t.open(ctx, "b"); err != nil {
			return "", err
		}
		return "", t.remote(ctx)
	}); err != nil {
		return err
	}
	child := t.vm + "-fork-1"
	if err := t.step(fmt.Sprintf("host B: fork it from checkpoint %d, before the careless command", t.good), func() (string, error) {
		vms, err := t.api.Fork(ctx, host.ForkRequest{From: "far:" + t.vm, Checkpoint: &t.good})
		if err != nil {
			return "", err
		}
		t.vms = append(t.vms, vms[0].ID)
		return vms[0].ID, expect(vms[0].ID == child, "the child is called %s", child)
	}); err != nil {
		return err
	}
	return t.step("… where the file is what it was, and the process counts on", func() (string, error) {
		r, err := t.sh(ctx, child, scriptReportSum)
		if err != nil {
			return r.out, err
		}
		if err := expect(r.out == t.sum, "the file is as it was: %s, not %s", r.out, t.sum); err != nil {
			return r.out, err
		}
		found, err := t.count(ctx, child, scriptCount)
		return r.out + "\n" + found, err
	})
}

func (t *hostLost) wakeElsewhere(ctx context.Context) error {
	if err := t.step("host B: take the VM over, under its own name", func() (string, error) {
		if _, err := t.api.TakeOver(ctx, "far", t.vm); err != nil {
			return "", err
		}
		vm, err := t.api.Start(ctx, t.vm)
		return vm.Notice, err
	}); err != nil {
		return err
	}
	if err := t.step("… it goes on where it was: the same process, the next number", func() (string, error) {
		found, err := t.count(ctx, t.vm, scriptCount)
		if err != nil {
			return found, err
		}
		return found, expect(found == fmt.Sprintf("%s %d", t.counter, t.counted+1), "it says %d next", t.counted+1)
	}); err != nil {
		return err
	}
	return t.step("… with its whole history, and S3 knows its new owner", func() (string, error) {
		cps, err := t.api.History(ctx, t.vm)
		if err != nil {
			return "", err
		}
		if _, err := t.api.Push(ctx, host.RemotePushRequest{VM: t.vm, Remote: "far"}, nil); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d checkpoints", len(cps)), expect(len(cps) > t.good, "all checkpoints are there")
	})
}
