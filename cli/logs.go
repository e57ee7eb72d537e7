package cli

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) logsCmd() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs VM",
		Short: "show the guest's console",
		Long: `logs shows what the guest's kernel and init wrote to the console. The daemon's own log is flash.log in its home.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args:              exactArgs("VM"),
		ValidArgsFunction: a.completeOneVM,
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		err := api.Logs(ctx, args[0], follow, a.stdout)
		if follow && ctx.Err() != nil {
			return nil // interrupted: that is how following ends
		}
		return err
	})
	return cmd
}
