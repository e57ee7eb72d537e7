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
	return a.startLike("resume VM…", "bring crashed or stopped VMs back", `resume brings a VM back after a crash or a stop, from its newest checkpoint. It does the same as start.`)
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
