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
	"flash/vmm/host"
)

func (a *app) benchCmd() *cobra.Command {
	var bundle string
	var memMiB, runs int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure checkpoints, rewinds and forks on real guests, beside plain QEMU",
		Long: `bench measures on guests of its own, in a home of its own that is removed afterwards, and touches nothing else: the pause
of a checkpoint, exec with its checkpoint, rewind, fork, hashing and storing; and savevm and loadvm of plain QEMU with the
same guest in the same run. Let nothing else run meanwhile.

Exit codes: 0 measured, 1 something failed, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			var report bench.Report
			err := a.inBenchHome(cmd.Context(), bundle, func(p *parts, home string, step func(string)) (err error) {
				report, err = bench.Run(cmd.Context(),
					bench.Config{Host: p.host, Bundle: bundle, MemMiB: memMiB, Runs: runs, Step: step},
					bench.Plain{Store: p.store, Bundle: bundle, MemMiB: memMiB, Dir: home, Binary: "qemu-system-x86_64", Rounds: 3})
				return err
			})
			if err != nil {
				return err
			}
			return a.showReport(report)
		}),
	}
	cmd.Flags().StringVar(&bundle, "bundle", "busybox", "what the guests boot from, built for the run: busybox or debian")
	cmd.Flags().IntVar(&memMiB, "mem-mib", 512, "memory of the guests in MiB")
	cmd.Flags().IntVar(&runs, "runs", 20, "samples of each figure")
	cmd.AddCommand(a.benchGCCmd())
	return cmd
}

func (a *app) benchGCCmd() *cobra.Command {
	var bundle string
	var memMiB, runs, fillMiB int
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "measure collections, and what they cost checkpoints beside them",
		Long: `bench gc measures in a home of its own that is removed afterwards: how fast packs are swept and compacted, the pause of a
checkpoint with and without a collection beside it, and what is left when everything is deleted. Let nothing else run
meanwhile. For a 99th percentile take --runs 100 or more.

Exit codes: 0 measured, 1 something failed, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			var report bench.Report
			err := a.inBenchHome(cmd.Context(), bundle, func(p *parts, home string, step func(string)) (err error) {
				report, err = bench.GC(cmd.Context(), bench.GCConfig{Store: p.store, Home: home, FillMiB: fillMiB,
					Config: bench.Config{Host: p.host, Bundle: bundle, MemMiB: memMiB, Runs: runs, Step: step}})
				return err
			})
			if err != nil {
				return err
			}
			return a.showReport(report)
		}),
	}
	cmd.Flags().StringVar(&bundle, "bundle", "busybox", "what the guest boots from, built for the run: busybox or debian")
	cmd.Flags().IntVar(&memMiB, "mem-mib", 512, "memory of the guest in MiB")
	cmd.Flags().IntVar(&runs, "runs", 20, "checkpoints with and without a collection, each")
	cmd.Flags().IntVar(&fillMiB, "fill-mib", 512, "garbage that is made and collected at once, in MiB")
	return cmd
}

func (a *app) showReport(r bench.Report) error {
	return a.show(r, func() string {
		var b strings.Builder
		r.Print(&b)
		return b.String()
	})
}

// inBenchHome opens a host in a home of its own, with a bundle, and measures there.
func (a *app) inBenchHome(ctx context.Context, bundle string, measure func(p *parts, home string, step func(string)) error) (err error) {
	base, err := a.homeDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return host.Explain(err, base)
	}
	home, err := os.MkdirTemp(base, "bench-")
	if err != nil {
		return host.Explain(err, base)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	p, err := openParts(ctx, home, slog.New(slog.DiscardHandler), qemuEngine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := os.Symlink(filepath.Join(base, "cache"), filepath.Join(home, "cache")); err != nil { // packages fetched once
		return host.Explain(err, home)
	}
	if err := os.MkdirAll(filepath.Join(base, "cache"), 0o700); err != nil {
		return host.Explain(err, home)
	}
	step := func(s string) {
		if isTerminal(a.stderr) && !a.json {
			fmt.Fprintln(a.stderr, "bench: "+s)
		}
	}
	step("building bundle " + bundle)
	if _, err := p.host.BuildBundle(ctx, host.BuildRequest{Kind: bundle}, nil); err != nil {
		return err
	}
	return measure(p, home, step)
}
