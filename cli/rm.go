package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) rmCmd() *cobra.Command {
	var force bool
	var numbers []int
	cmd := &cobra.Command{
		Use:   "rm VM…",
		Short: "remove VMs with their history",
		Long: `rm removes a VM, all its checkpoints and its ledger. This can't be undone. A running VM, or one with pinned
checkpoints, is refused unless --force. VMs forked from it keep all they need. The space comes back with flash gc.

With --checkpoint only these are removed, from the one VM named. The head, pins and fork points stay.

Exit codes: 0 removed, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("VM"),
		ValidArgsFunction: a.completeVMs,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also when it runs or has pinned checkpoints")
	cmd.Flags().IntSliceVarP(&numbers, "checkpoint", "c", nil, "remove only this checkpoint; may be given more than once")
	all := a.withAPI(func(ctx context.Context, api host.API, args []string) error {
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(numbers) == 0:
			return all(cmd, args)
		case len(args) != 1:
			return usageError{errors.New("--checkpoint goes with one VM")}
		}
		return a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			return a.removeCheckpoints(ctx, api, args[0], numbers)
		})(cmd, args)
	}
	return cmd
}

func (a *app) removeCheckpoints(ctx context.Context, api host.API, id string, numbers []int) error {
	for _, n := range numbers {
		if err := api.RemoveCheckpoint(ctx, id, n); err != nil {
			return err
		}
		if !a.json {
			fmt.Fprintf(a.stdout, "%s checkpoint %d is removed\n", id, n)
		}
	}
	if a.json {
		return a.printJSON(map[string][]int{"removed": numbers})
	}
	return nil
}
