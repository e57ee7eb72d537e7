package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) checkpointCmd() *cobra.Command {
	var r host.CheckpointRequest
	cmd := &cobra.Command{
		Use:   "checkpoint VM",
		Short: "save a VM as it is now",
		Long: `checkpoint saves the whole VM – memory, CPUs, devices, disk – at one instant. The guest hardly notices.

Exit codes: 0 saved, 1 refused or failed, 2 wrong usage.`,
		Args:              exactArgs("VM"),
		ValidArgsFunction: a.completeOneVM,
	}
	cmd.Flags().StringVarP(&r.Label, "label", "l", "", "what it is for")
	cmd.Flags().BoolVar(&r.Pin, "pin", false, "keep it for good")
	cmd.Flags().StringVar(&r.RequestID, "request-id", "", "the same id again gives the same answer")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		r.ID = args[0]
		cp, err := api.Checkpoint(ctx, r)
		if err != nil {
			return err
		}
		return a.show(cp, func() string { return checkpointLine(r.ID, cp) })
	})
	return cmd
}

func checkpointLine(vm string, cp host.Checkpoint) string {
	s := fmt.Sprintf("%s checkpoint %d, %s new", vm, cp.Number, kib(cp.NewBytes))
	if t := cp.Timing; t != nil {
		s += fmt.Sprintf("; the guest stood still for %s", micros(t.PauseMicros))
	}
	if cp.Pinned {
		s += ", pinned"
	}
	return s + "\n"
}

func micros(n int64) time.Duration {
	d := time.Duration(n) * time.Microsecond
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
