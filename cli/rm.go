package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) rmCmd() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm VM…",
		Short: "remove VMs with their history",
		Long: `rm removes a VM, all its checkpoints and its ledger. This can't be undone. A running VM, or one with pinned
checkpoints, is refused unless --force. VMs forked from it keep all they need.

Exit codes: 0 removed, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("VM"),
		ValidArgsFunction: a.completeVMs,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also when it runs or has pinned checkpoints")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		removed := []string{}
		for _, id := range args {
			if err := api.Remove(ctx, host.RemoveRequest{ID: id, Force: force}); err != nil {
				return err
			}
			removed = append(removed, id)
			if !a.json {
				fmt.Fprintf(a.stdout, "%s is removed\n", id)
			}
		}
		if a.json {
			return a.printJSON(map[string][]string{"removed": removed})
		}
		return nil
	})
	return cmd
}
