package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"flash/cas/bucket/buckettest"
	"flash/vmm/host"
)

// Away is what the workload with object storage runs on: real guests on two hosts, and a real S3 server on loopback.
type Away struct {
	Config
	Rounds int                                                             // samples of a figure; 0: 3
	Dir    string                                                          // scratch
	Open   func(name string) (api host.API, close func() error, err error) // a host with an empty home in Dir

	// ImagesOf writes memory and disk of a checkpoint of the first host's as files.
	ImagesOf func(ctx context.Context, vm string, number int, dir string) error
}

// awayRun is one play.
type awayRun struct {
	Away
	server *buckettest.Server
	near   *guests // the VM on the first host
	home   string
	figs   []Figure
	vmCps  int // checkpoints of the VM
}

// Run plays it: a VM with some history is pushed, forked on empty hosts, and backed up by restic.
func (a Away) Run(ctx context.Context) (r Report, err error) {
	if a.Rounds == 0 {
		a.Rounds = 3
	}
	r.Machine = machineFacts(ctx, "qemu-system-x86_64")
	server, err := buckettest.Start(ctx, filepath.Join(a.Dir, "s3"))
	if err != nil {
		return r, err
	}
	defer server.Stop()
	api, closeHost, err := a.Open("first")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closeHost()) }()
	a.Host = api
	run := &awayRun{Away: a, server: server, home: filepath.Join(a.Dir, "first")}
	defer func() { r.Figures = run.figs }()
	for _, step := range []func(context.Context) error{run.live, run.push, run.wake, run.wakeSlowly, run.restic} {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *awayRun) add(name, unit, goal string, samples ...float64) {
	r.figs = append(r.figs, figure(name, unit, goal, samples))
}

// note explains the newest figure.
func (r *awayRun) note(format string, args ...any) {
	r.figs[len(r.figs)-1].Note = fmt.Sprintf(format, args...)
}

// live gives a VM a history of work.
func (r *awayRun) live(ctx context.Context) (err error) {
	if r.near, err = r.run(ctx, "away-1"); err != nil {
		return err
	}
	for i := range awayCommands {
		work := fmt.Sprintf("mkdir -p /work && head -c 2000000 /dev/urandom > /work/random%d && find / -xdev > /work/list%d && sync", i, i)
		if _, err := r.near.exec(ctx, r.near.id, true, "sh", "-c", work); err != nil {
			return err
		}
	}
	if _, err := r.Host.Checkpoint(ctx, host.CheckpointRequest{ID: r.near.id, Label: "pushed"}); err != nil {
		return err
	}
	cps, err := r.Host.History(ctx, r.near.id)
	r.vmCps = len(cps)
	return err
}

const awayCommands = 8

// remote makes a prefix of the server's bucket known to a host.
func (r *awayRun) remote(ctx context.Context, api host.API, name, endpoint, prefix string) error {
	_, err := api.AddRemote(ctx, host.AddRemoteRequest{
		RemoteSpec:    host.RemoteSpec{Name: name, URL: "s3://" + r.server.Bucket + "/" + prefix, Endpoint: endpoint, Region: "us-east-1"},
		RemoteSecrets: host.RemoteSecrets{AccessKey: r.server.AccessKey, SecretKey: r.server.SecretKey},
	})
	return err
}

// requests is how many requests a host has made of a remote, and what they brought.
func requests(ctx context.Context, api host.API, name string) (count, received int64, err error) {
	all, err := api.Remotes(ctx)
	for _, one := range all {
		if one.Name == name && one.Requests != nil {
			return one.Requests.Requests(), one.Requests.ReceivedBytes, err
		}
	}
	return 0, 0, errors.Join(err, fmt.Errorf("remote %s doesn't count", name))
}

// push measures pushes into empty prefixes beside what the server takes of the same bytes without us, and a second push.
func (r *awayRun) push(ctx context.Context) error {
	r.say("push")
	var rates, again []float64
	var bytes int64
	for i := range r.Rounds {
		name := fmt.Sprintf("push%d", i)
		if err := r.remote(ctx, r.Host, name, r.server.Endpoint, name); err != nil {
			return err
		}
		began := time.Now()
		report, err := r.Host.Push(ctx, host.RemotePushRequest{VM: r.near.id, Remote: name}, nil)
		if err != nil {
			return err
		}
		bytes = report.NewBytes
		rates = append(rates, float64(bytes)/1e6/time.Since(began).Seconds())
		before, _, err := requests(ctx, r.Host, name)
		if err != nil {
			return err
		}
		if _, err := r.Host.Push(ctx, host.RemotePushRequest{VM: r.near.id, Remote: name}, nil); err != nil {
			return err
		}
		after, _, err := requests(ctx, r.Host, name)
		if err != nil {
			return err
		}
		again = append(again, float64(after-before))
	}
	plain, err := r.putLoop(ctx)
	if err != nil {
		return err
	}
	r.add("push of new packs", "MB/s", "≥ 70 % of the PUT loop", rates...)
	r.figs[len(r.figs)-1].Baseline = &plain.Median
	r.note("%.1f MB of packs; the baseline is the PUT loop", float64(bytes)/1e6)
	r.figs = append(r.figs, plain)
	r.add("second push of an unchanged VM", "requests", "≤ 20", again...)
	return nil
}

// wake measures forks on empty hosts beside forks on the host that has everything.
func (r *awayRun) wake(ctx context.Context) error {
	r.say("fork on this host")
	warm, err := r.forks(ctx, r.near, r.Rounds)
	if err != nil {
		return err
	}
	// The working set that these forks have left is pushed, too: it is what the other host prefetches.
	if _, err := r.Host.Push(ctx, host.RemotePushRequest{VM: r.near.id, Remote: "push0"}, nil); err != nil {
		return err
	}
	whole, err := r.wholeSnapshot(ctx)
	if err != nil {
		return err
	}
	r.say("fork on an empty host")
	var cold, share, count []float64
	for i := range r.Rounds {
		took, asked, fetched, err := r.coldFork(ctx, fmt.Sprintf("second%d", i), r.server.Endpoint)
		if err != nil {
			return err
		}
		cold = append(cold, took)
		share = append(share, 100*float64(fetched)/float64(whole))
		count = append(count, float64(asked))
	}
	r.add("fork of one, warm local store", "ms", "", warm...)
	base := r.figs[len(r.figs)-1].Median
	r.add("fork of one on an empty host", "ms", "≤ 3× warm", cold...)
	r.figs[len(r.figs)-1].Baseline = &base
	r.note("the baseline is the warm fork; the process of the other host and its waiting QEMU are up before the clock starts")
	r.add("… of the snapshot's stored bytes, fetched", "%", "≤ 25", share...)
	r.add("… requests", "requests", "", count...)
	return nil
}

// forks measures forks of one on a host.
func (r *awayRun) forks(ctx context.Context, g *guests, rounds int) (all []float64, err error) {
	cps, err := g.Host.History(ctx, g.id)
	if err != nil {
		return nil, err
	}
	number := cps[len(cps)-1].Number
	for range rounds + 1 {
		began := time.Now()
		children, err := g.Host.Fork(ctx, host.ForkRequest{From: g.id, Checkpoint: &number})
		if err != nil {
			return nil, err
		}
		if _, err := g.exec(ctx, children[0].ID, false, "true"); err != nil {
			return nil, err
		}
		all = append(all, millis(time.Since(began)))
		if err := g.Host.Remove(ctx, host.RemoveRequest{ID: children[0].ID, Force: true}); err != nil {
			return nil, err
		}
	}
	return all[1:], nil // the first learns the working set
}

// coldFork opens a host with nothing and forks there.
func (r *awayRun) coldFork(ctx context.Context, name, endpoint string) (took float64, asked, fetched int64, err error) {
	api, closeHost, err := r.Open(name)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, closeHost(), os.RemoveAll(filepath.Join(r.Dir, name))) }()
	if err := r.remote(ctx, api, "far", endpoint, "push0"); err != nil {
		return 0, 0, 0, err
	}
	if _, err := api.Info(ctx); err != nil { // the engine is probed
		return 0, 0, 0, err
	}
	g := &guests{Config: Config{Host: api}}
	began := time.Now()
	number := r.vmCps
	children, err := api.Fork(ctx, host.ForkRequest{From: "far:" + r.near.id, Checkpoint: &number})
	if err != nil {
		return 0, 0, 0, err
	}
	if _, err := g.exec(ctx, children[0].ID, false, "true"); err != nil {
		return 0, 0, 0, err
	}
	took = millis(time.Since(began))
	asked, fetched, err = requests(ctx, api, "far")
	return took, asked, fetched, errors.Join(err, api.Remove(ctx, host.RemoveRequest{ID: children[0].ID, Force: true}))
}

// wholeSnapshot is what a full pull of the VM brings.
func (r *awayRun) wholeSnapshot(ctx context.Context) (int64, error) {
	_, bytes, err := r.pull(ctx, "whole", r.server.Endpoint)
	return bytes, err
}

// pull measures a whole pull onto an empty host.
func (r *awayRun) pull(ctx context.Context, name, endpoint string) (took float64, bytes int64, err error) {
	api, closeHost, err := r.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, closeHost(), os.RemoveAll(filepath.Join(r.Dir, name))) }()
	if err := r.remote(ctx, api, "far", endpoint, "push0"); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	report, err := api.Pull(ctx, host.RemotePullRequest{Remote: "far", VM: r.near.id}, nil)
	return millis(time.Since(began)), report.NewBytes, err
}

// farLatency is what each request takes longer when the storage is in another town.
const farLatency = 20 * time.Millisecond

// wakeSlowly measures the same through a proxy that delays every request.
func (r *awayRun) wakeSlowly(ctx context.Context) error {
	r.say("fork on an empty host, %s added to each request", farLatency)
	proxy, err := buckettest.StartProxy(r.server.Endpoint, buckettest.Plan{Latency: farLatency})
	if err != nil {
		return err
	}
	defer proxy.Close()
	var lazy, full []float64
	for i := range r.Rounds {
		took, _, _, err := r.coldFork(ctx, fmt.Sprintf("slow%d", i), proxy.Endpoint)
		if err != nil {
			return err
		}
		lazy = append(lazy, took)
		took, _, err = r.pull(ctx, fmt.Sprintf("slowpull%d", i), proxy.Endpoint)
		if err != nil {
			return err
		}
		full = append(full, took)
	}
	r.add("full pull, 20 ms added latency", "ms", "", full...)
	base := r.figs[len(r.figs)-1].Median
	r.add("lazy start, 20 ms added latency", "ms", "≤ 2000 and ≤ ⅓ of a full pull", lazy...)
	r.figs[len(r.figs)-1].Baseline = &base
	r.note("the baseline is the full pull")
	return nil
}
