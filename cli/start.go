package cli

import (
	"context"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) startCmd() *cobra.Command {
	return a.startLike("start VM…", "start stopped VMs from where they were", `start brings a VM back from its newest checkpoint, or from its bundle when it has none.`)
}

// resumeCmd is start by the name its users look for after a crash.
func (a *app) resumeCmd() *cobra.Command {
	cmd := a.startLike("resume VM…", "bring crashed or stopped VMs back", `resume brings a VM back after a crash or a stop, from its newest checkpoint. It does the same as start.

--take-over makes this host the owner of a VM that another host has pushed to a remote: it is brought here lazily, unless it
is here already, and the other host's pushes are refused from then on.`)
	var takeOver bool
	var remote string
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "become the owner first")
	cmd.Flags().StringVar(&remote, "remote", "", "the remote it is in (default: the only one there is)")
	resume := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if takeOver {
			err := a.withAPI(func(ctx context.Context, api host.API, ids []string) error {
				for _, id := range ids {
					if _, err := api.TakeOver(ctx, remote, id); err != nil {
						return err
					}
				}
				return nil
			})(cmd, args)
			if err != nil {
				return err
			}
		}
		return resume(cmd, args)
	}
	return cmd
}

func (a *app) startLike(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long: long + `
Connections to the outside that were open then are dead now.

Exit codes: 0 running, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("VM"),
		ValidArgsFunction: a.completeVMs,
		RunE: a.changeVMs(func(ctx context.Context, api host.API, id string) (host.VM, error) {
			return api.Start(ctx, id)
		}),
	}
}
