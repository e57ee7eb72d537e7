package cli

import (
	"github.com/spf13/cobra"

	"flash/bench"
)

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
