package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) historyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "history VM",
		Short: "show a VM's checkpoints as a tree",
		Long: `history shows a VM's checkpoints: number, age, what each added to the store, the command it was taken before, and how
that command ended. ● marks the head: where the machine is. ⚑ marks pins. A rewind starts a new branch; nothing is removed.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args:              exactArgs("VM"),
		ValidArgsFunction: a.completeOneVM,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			cps, err := api.History(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(list(cps), func() string { return historyTree(cps, time.Now()) })
		}),
	}
}
