package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

// demo is one story that can be played.
type demo struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Tells  string `json:"tells"`
	play   func(ctx context.Context, api host.API, s *stage) error
	alone  bool // it starts its own daemons: api is nil
}

// demos keep their numbers: scripts and documents name them.
var demos = []demo{
	{21, "two-fixes", "an agent's mistake, undone, then two branches each try a different fix and one finds it", playTwoFixes, false},
	{22, "host-lost", "a VM follows to S3, its host is lost with its disk, and another host wakes it", playHostLost, true},
}

func (a *app) demoCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "play a story with a real VM, checking every step",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("demo needs one of list, run")}
		},
	}
	cmd.AddCommand(a.demoListCmd(), a.demoRunCmd())
	return cmd
}

func (a *app) demoListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the stories",
		Args:  cobra.NoArgs,
		RunE: a.run(func(*cobra.Command, []string) error {
			return a.show(demos, func() string {
				rows := make([][]string, len(demos))
				for i, d := range demos {
					rows[i] = []string{fmt.Sprint(d.Number), d.Name, d.Tells}
				}
				return table([]string{"\tN", "NAME", "TELLS"}, rows)
			})
		}),
	}
}

func (a *app) demoRunCmd() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "run N",
		Short: "play one",
		Long: `run plays a story and checks every step of it. It makes VMs of its own, whose names begin with demo-, and removes them.

Exit codes: 0 everything held, 1 something didn't, 2 wrong usage.`,
		Args: exactArgs("a story's number"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var words []string
			for _, d := range demos {
				words = append(words, describe(fmt.Sprint(d.Number), d.Tells))
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the VMs, to look around in")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, d := range demos {
			if fmt.Sprint(d.Number) == args[0] || d.Name == args[0] {
				if d.alone {
					return a.run(func(cmd *cobra.Command, _ []string) error { return a.playDemo(cmd.Context(), nil, d, keep) })(cmd, args)
				}
				return a.withAPI(func(ctx context.Context, api host.API, _ []string) error { return a.playDemo(ctx, api, d, keep) })(cmd, args)
			}
		}
		return usageError{fmt.Errorf("there is no demo %q; flash demo list shows them", args[0])}
	}
	return cmd
}
