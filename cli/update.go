package cli

import (
	"context"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) updateCmd() *cobra.Command {
	var restart string
	cmd := &cobra.Command{
		Use:   "update VM… --restart no|always",
		Short: "change whether VMs come back by themselves",
		Long: `update changes a VM's policy for restarts. With always, the daemon brings it back from its newest checkpoint when it has
crashed, when the daemon was killed, and when the host was started again; between two returns in a row it waits longer and
longer, up to a minute. What a return has lost stands in flash ledger. A VM that was stopped, or whose guest has shut down,
stays as it is. A fork begins with no.

Exit codes: 0 changed, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("VM"),
		ValidArgsFunction: a.completeVMs,
	}
	cmd.Flags().StringVar(&restart, "restart", "", "no or always")
	cmd.MarkFlagRequired("restart")
	cmd.RegisterFlagCompletionFunc("restart", cobra.FixedCompletions([]string{host.RestartNo, host.RestartAlways}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = a.changeVMs(func(ctx context.Context, api host.API, id string) (host.VM, error) {
		return api.Update(ctx, host.UpdateRequest{ID: id, Restart: restart})
	})
	return cmd
}
