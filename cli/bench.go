package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	cmd.AddCommand(a.benchSoakCmd())
	cmd.Flags().StringVar(&bundle, "bundle", "busybox", "what the guests boot from, built for the run: busybox or debian")
	cmd.Flags().IntVar(&memMiB, "mem-mib", 512, "memory of the guests in MiB")
	cmd.Flags().IntVar(&runs, "runs", 20, "samples of each figure")
	cmd.AddCommand(a.benchS3Cmd(), a.benchGCCmd())
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
	home, remove, err := a.benchHome("bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	p, err := openParts(ctx, home, slog.New(slog.DiscardHandler), qemuEngine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
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
