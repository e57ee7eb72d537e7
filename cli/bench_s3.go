package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"flash/bench"
	"flash/store"
	"flash/vmm/host"
)

func (a *app) benchS3Cmd() *cobra.Command {
	var memMiB, rounds int
	cmd := &cobra.Command{
		Use:   "s3",
		Short: "measure pushes, and forks on empty hosts, with a real S3 server on loopback",
		Long: `s3 gives a guest a history, pushes it to an S3 server that it starts on loopback, forks it on hosts with empty homes, also with
20 ms added to each request, and backs the same images up with restic where that is installed. Let nothing else run meanwhile.

Exit codes: 0 measured, 1 something failed, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			report, err := a.benchS3(cmd.Context(), memMiB, rounds)
			if err != nil {
				return err
			}
			return a.show(report, func() string {
				var b strings.Builder
				report.Print(&b)
				return b.String()
			})
		}),
	}
	cmd.Flags().IntVar(&memMiB, "mem-mib", 512, "memory of the guests in MiB")
	cmd.Flags().IntVar(&rounds, "rounds", 3, "samples of each figure")
	return cmd
}

// benchS3 opens hosts in homes of their own, side by side in one folder that is removed, and measures there.
func (a *app) benchS3(ctx context.Context, memMiB, rounds int) (_ bench.Report, err error) {
	base, err := a.homeDir()
	if err != nil {
		return bench.Report{}, err
	}
	cache := filepath.Join(base, "cache")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return bench.Report{}, host.Explain(err, base)
	}
	dir, err := os.MkdirTemp(base, "bench-s3-")
	if err != nil {
		return bench.Report{}, host.Explain(err, base)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	step := func(s string) {
		if isTerminal(a.stderr) && !a.json {
			fmt.Fprintln(a.stderr, "bench: "+s)
		}
	}
	stores := map[string]*store.Store{}
	open := func(name string) (host.API, func() error, error) {
		home := filepath.Join(dir, name)
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, nil, host.Explain(err, home)
		}
		p, err := openParts(ctx, home, slog.New(slog.DiscardHandler), qemuEngine)
		if err != nil {
			return nil, nil, err
		}
		stores[name] = p.store
		return p.host, p.Close, nil
	}
	first := func(name string) (host.API, func() error, error) {
		api, closeHost, err := open(name)
		if err != nil || name != "first" {
			return api, closeHost, err
		}
		if err := os.Symlink(cache, filepath.Join(dir, name, "cache")); err != nil { // packages are fetched once
			return nil, nil, errors.Join(err, closeHost())
		}
		step("building bundle busybox")
		_, err = api.BuildBundle(ctx, host.BuildRequest{Kind: "busybox"}, nil)
		return api, closeHost, err
	}
	return bench.Away{
		Config: bench.Config{Bundle: "busybox", MemMiB: memMiB, Step: step}, Rounds: rounds, Dir: dir, Open: first,
		ImagesOf: func(ctx context.Context, vm string, number int, to string) error {
			return writeImages(ctx, stores["first"], vm, number, to)
		},
	}.Run(ctx)
}

// writeImages writes a checkpoint's memory and disk as files, their zeros as holes.
func writeImages(ctx context.Context, s *store.Store, vm string, number int, to string) error {
	c, err := s.Checkpoint(ctx, vm, number)
	if err != nil {
		return err
	}
	snap, err := s.Snapshot(ctx, c.Snapshot)
	if err != nil {
		return err
	}
	for _, name := range []string{"mem", "disk0"} {
		image, err := snap.Image(ctx, name)
		if err != nil {
			return err
		}
		if err := bench.WriteImage(ctx, image, filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}
