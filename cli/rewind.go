package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) rewindCmd() *cobra.Command {
	var requestID string
	cmd := &cobra.Command{
		Use:   "rewind VM N",
		Short: "take a VM back to a checkpoint",
		Long: `rewind takes a VM back to checkpoint N, the state just before command N: memory, processes and files exactly as they
were. What is left is itself saved first, so a rewind can be undone by another. Connections to the outside don't come back,
and what the guest has done outside is not undone.

Exit codes: 0 rewound, 1 refused or failed (the VM is as it was), 2 wrong usage.`,
		Example:           "  flash rewind agent-1 3",
		Args:              exactArgs("VM", "a checkpoint's number"),
		ValidArgsFunction: a.completeVMThenCheckpoint,
	}
	cmd.Flags().StringVar(&requestID, "request-id", "", "the same id again gives the same answer")
	cmd.RunE = a.withCheckpoint(func(ctx context.Context, api host.API, id string, n int) error {
		res, err := api.Rewind(ctx, host.RewindRequest{RequestID: requestID, ID: id, Checkpoint: n})
		if err != nil {
			return err
		}
		return a.show(res, func() string {
			s := fmt.Sprintf("%s is at checkpoint %d\n", id, n)
			if res.Saved != nil {
				s += fmt.Sprintf("what it left is checkpoint %d; flash rewind %s %d goes back there\n", res.Saved.Number, id, res.Saved.Number)
			}
			return s + notice(res.VM)
		})
	})
	return cmd
}

// withCheckpoint is withAPI for "VM N".
func (a *app) withCheckpoint(f func(ctx context.Context, api host.API, id string, n int) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		n, err := parseNumber(args[1])
		if err != nil {
			return err
		}
		return a.withAPI(func(ctx context.Context, api host.API, args []string) error { return f(ctx, api, args[0], n) })(cmd, args)
	}
}

// parseNumber reads a checkpoint's number. Whether there is such a checkpoint is the host's to say.
func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, usageError{fmt.Errorf("a checkpoint is a number of the VM's history, not %q", text)}
	}
	return n, nil
}
