package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) pinCmd() *cobra.Command {
	return a.pinLike("pin VM N", "keep a checkpoint for good", true, "is pinned: retention and gc skip it")
}

func (a *app) unpinCmd() *cobra.Command {
	return a.pinLike("unpin VM N", "let a checkpoint go again when retention says so", false, "is no longer pinned")
}

func (a *app) pinLike(use, short string, pinned bool, done string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + `.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args:              exactArgs("VM", "a checkpoint's number"),
		ValidArgsFunction: a.completeVMThenCheckpoint,
		RunE: a.withCheckpoint(func(ctx context.Context, api host.API, id string, n int) error {
			cp, err := api.Pin(ctx, id, n, pinned)
			if err != nil {
				return err
			}
			return a.show(cp, func() string { return fmt.Sprintf("%s checkpoint %d %s\n", id, n, done) })
		}),
	}
}
