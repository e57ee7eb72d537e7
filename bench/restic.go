package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"flash/vmm/host"
)

// restic backs the same memory images and disks up, checkpoint by checkpoint, with restic to the same server, beside pushes
// of the same checkpoints one by one.
func (r *awayRun) restic(ctx context.Context) error {
	program, err := exec.LookPath("restic")
	if errors.Is(err, exec.ErrNotFound) {
		r.add("restic", "ms", "")
		r.note("it isn't installed; apt-get install restic, and run this again")
		return nil
	}
	if err != nil {
		return err
	}
	r.say("the same images with restic")
	if err := r.remote(ctx, r.Host, "stepwise", r.server.Endpoint, "stepwise"); err != nil {
		return err
	}
	env := append(os.Environ(), "RESTIC_REPOSITORY=s3:"+r.server.Endpoint+"/"+r.server.Bucket+"/restic", "RESTIC_PASSWORD=bench",
		"AWS_ACCESS_KEY_ID="+r.server.AccessKey, "AWS_SECRET_ACCESS_KEY="+r.server.SecretKey, "RESTIC_CACHE_DIR="+filepath.Join(r.Dir, "restic-cache"))
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("restic %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	if err := run("init"); err != nil {
		return err
	}
	images := filepath.Join(r.Dir, "images")
	if err := os.Mkdir(images, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(images)
	var theirs, ours []float64
	for n := 1; n <= r.vmCps; n++ {
		if err := r.ImagesOf(ctx, r.near.id, n, images); err != nil {
			return err
		}
		began := time.Now()
		if err := run("backup", "--quiet", images); err != nil {
			return err
		}
		theirs = append(theirs, millis(time.Since(began)))
		began = time.Now()
		if _, err := r.Host.Push(ctx, host.RemotePushRequest{VM: r.near.id, Checkpoint: &n, Remote: "stepwise"}, nil); err != nil {
			return err
		}
		ours = append(ours, millis(time.Since(began)))
	}
	theirMiB, err := r.stored("restic")
	if err != nil {
		return err
	}
	ourMiB, err := r.stored("stepwise")
	if err != nil {
		return err
	}
	r.add("restic: backup of one checkpoint's images", "ms", "", theirs...)
	base := r.figs[len(r.figs)-1].Median
	r.add("push of one checkpoint", "ms", "faster than restic", ours...)
	r.figs[len(r.figs)-1].Baseline = &base
	r.add("restic: stored in all", "MiB", "", theirMiB)
	r.add("pushes: stored in all", "MiB", "fewer than restic", ourMiB)
	r.figs[len(r.figs)-1].Baseline = &theirMiB
	r.note("%d checkpoints; ours hold the kernel, initrd and device states besides", r.vmCps)
	return nil
}

// stored is what a prefix takes on the server's disk.
func (r *awayRun) stored(prefix string) (mib float64, err error) {
	err = filepath.WalkDir(filepath.Join(r.server.Dir, r.server.Bucket, prefix), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			mib += float64(info.Size()) / (1 << 20)
		}
		return err
	})
	return mib, err
}
