package cli

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas/bucket/buckettest"
	"flash/vmm"
	"flash/vmm/fake"
	"flash/vmm/host"
)

// otherHost is the shared program with a home of its own, as another machine would have, which ends with the test.
func (f *realFlash) otherHost(t *testing.T, env []string) *realFlash {
	t.Helper()
	home, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	other := &realFlash{root: f.root, home: home, env: env, as: f.as}
	t.Cleanup(func() {
		other.try("serve", "--stop")
		os.RemoveAll(home)
	})
	return other
}

// vm gives one of ps.
func (f *realFlash) vm(t *testing.T, id string) host.VM {
	t.Helper()
	var vms []host.VM
	if err := json.Unmarshal([]byte(f.must(t, "ps", "--json", id)), &vms); err != nil || len(vms) != 1 {
		t.Fatalf("ps %s: %v, %d VMs", id, err, len(vms))
	}
	return vms[0]
}

// A guest whose pages are still in object storage stands still while that is away, goes on when it is back, and ends with a
// reason when a page is lost for good; and nothing that it had is lost with it once the storage is whole again.
func TestALazyVMWaitsForItsStorageAndEndsWhenAPageIsLost(t *testing.T) {
	a := needGuests(t)
	server := buckettest.ServerFor(t)
	proxy := buckettest.ProxyFor(t, server.Endpoint, buckettest.Plan{})
	env := server.Env()
	for i := range env {
		env[i] = strings.Replace(env[i], server.Endpoint, proxy.Endpoint, 1)
	}
	a = &realFlash{root: a.root, home: a.home, env: env, as: a.as}
	url := "s3://" + server.Bucket + "/away"

	a.must(t, "run", "--bundle", "busybox", "--id", "away", "--checkpoints", "--detach")
	t.Cleanup(func() { a.try("rm", "--force", "away") })
	sums := a.must(t, "exec", "away", "--", "sh", "-c", "for i in 1 2; do head -c 6000000 /dev/urandom > /dev/shm/$i; md5sum < /dev/shm/$i; done")
	first, second, _ := strings.Cut(strings.TrimSpace(sums), "\n")
	a.must(t, "checkpoint", "away")
	// The daemon of the shared home was started without these credentials: remote add hands them over.
	a.must(t, "remote", "add", "away", url, "--endpoint", proxy.Endpoint)
	t.Cleanup(func() { a.try("remote", "rm", "away") })
	a.must(t, "push", "away", "away")

	b := a.otherHost(t, env)
	b.must(t, "remote", "add", "away", url, "--endpoint", proxy.Endpoint)
	b.must(t, "fork", "away:away", "--id", "child", "--from", "2")
	b.must(t, "exec", "child", "--", "true")

	// Away: every request is refused. The command waits; when the storage is back, it ends right.
	before := proxy.Faults(buckettest.SlowDown)
	proxy.SetPlan(buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.SlowDown, Count: -1}}})
	done := make(chan result, 1)
	go func() { done <- b.try("exec", "child", "--", "md5sum", "/dev/shm/1") }()
	limit := time.After(commandLimit / 2)
	for proxy.Faults(buckettest.SlowDown) < before+10 { // it asks again and again
		select {
		case r := <-done:
			t.Fatalf("the command ended while the storage was away: %s", r)
		case <-limit:
			t.Fatal("nobody asks the storage")
		case <-time.After(10 * time.Millisecond):
		}
	}
	proxy.SetPlan(buckettest.Plan{})
	if r := <-done; r.code != 0 || !strings.HasPrefix(r.stdout, strings.TrimSuffix(first, "  -")) {
		t.Fatalf("after the outage: %s, want %s", r, first)
	}

	// Lost: the packs are gone. The guest that needs one ends, and says why; others go on.
	packs := filepath.Join(server.Dir, server.Bucket, "away", "packs")
	aside := filepath.Join(t.TempDir(), "packs")
	if err := os.Rename(packs, aside); err != nil {
		t.Fatal(err)
	}
	if r := b.try("exec", "child", "--", "md5sum", "/dev/shm/2"); r.code == 0 {
		t.Fatalf("it read what is gone: %s", r)
	}
	vm := b.vm(t, "child")
	if vm.State != "crashed" || !strings.Contains(vm.Reason, "not found") && !strings.Contains(vm.Reason, "lost") {
		t.Fatalf("child is %s: %s", vm.State, vm.Reason)
	}

	// And back: whoever restores the bucket has everything again.
	if err := os.Rename(aside, packs); err != nil {
		t.Fatal(err)
	}
	b.must(t, "start", "child")
	if out := b.must(t, "exec", "child", "--", "md5sum", "/dev/shm/2"); !strings.HasPrefix(out, strings.TrimSuffix(second, "  -")) {
		t.Fatalf("after the loss: %s, want %s", out, second)
	}

	// Its host gone whole, another wakes the VM under its own name, with its files, and they are clean.
	b.must(t, "resume", "--take-over", "away")
	if out := b.must(t, "exec", "away", "--", "md5sum", "/dev/shm/1"); !strings.HasPrefix(out, strings.TrimSuffix(first, "  -")) {
		t.Fatalf("taken over: %s, want %s", out, first)
	}
	b.must(t, "stop", "away")
	if r := a.try("push", "away", "away"); r.code == 0 || !strings.Contains(r.stderr, "belongs to host") {
		t.Fatalf("the old owner's push: %s", r)
	}
	b.must(t, "push", "away", "away")
	b.must(t, "pull", "away:away") // the rest of it
	b.must(t, "check", "away", "--read", "all")
	fsckOf(t, b, "away")
}

// fsckOf checks the file system of a VM's head from outside of any guest, its journal replayed. It ends b's daemon.
func fsckOf(t *testing.T, b *realFlash, vm string) {
	t.Helper()
	b.must(t, "serve", "--stop")
	p, err := openParts(t.Context(), b.home, slog.New(slog.DiscardHandler), func(string, *slog.Logger) (vmm.Engine, error) { return fake.New(fake.Config{}), nil })
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.store.VM(t.Context(), vm)
	dir := t.TempDir()
	if err == nil {
		err = writeImages(t.Context(), p.store, vm, v.Head, dir)
	}
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk0")
	if out, err := exec.Command("e2fsck", "-fp", "-E", "journal_only", disk).CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() > 1 {
			t.Fatalf("replay the journal: %v: %s", err, out)
		}
	}
	if out, err := exec.Command("e2fsck", "-fn", disk).CombinedOutput(); err != nil {
		t.Errorf("the file system isn't clean: %v: %s", err, out)
	}
}
