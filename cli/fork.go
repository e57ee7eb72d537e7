package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) forkCmd() *cobra.Command {
	var r host.ForkRequest
	var from string
	var published []string
	cmd := &cobra.Command{
		Use:   "fork VM",
		Short: "make new VMs from a checkpoint",
		Long: `fork makes VMs from a checkpoint of another, which keeps running untouched. Without --from the present is checkpointed
and forked. Each child has its own name, address and random numbers, and a history that begins with its fork point.

Exit codes: 0 forked, 1 refused or failed, 2 wrong usage.`,
		Example:           "  flash fork agent-1 --from 3 --count 2",
		Args:              exactArgs("VM"),
		ValidArgsFunction: a.completeOneVM,
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the checkpoint's number (default: the present)")
	f.IntVarP(&r.Count, "count", "n", 1, "how many")
	f.StringArrayVar(&r.IDs, "id", nil, "a child's name; repeatable (default: made from the parent's)")
	f.StringArrayVarP(&published, "publish", "p", nil, "publish a child's TCP port, HOST:GUEST, or GUEST for any free one; repeatable")
	f.StringVar(&r.RequestID, "request-id", "", "the same id again gives the same answer")
	cmd.RegisterFlagCompletionFunc("from", a.completeCheckpointOfFirst)
	cmd.PreRunE = func(_ *cobra.Command, _ []string) (err error) {
		if r.Count < 1 {
			return usageError{errors.New("--count is at least 1")}
		}
		if from != "" {
			n, err := parseNumber(from)
			if err != nil {
				return err
			}
			r.Checkpoint = &n
		}
		r.Ports, err = parsePorts(published)
		return err
	}
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		r.From = args[0]
		vms, err := api.Fork(ctx, r)
		if err != nil {
			return err
		}
		return a.show(list(vms), func() string {
			s := vmTable(vms)
			if len(vms) > 0 {
				s += notice(vms[0])
			}
			return s
		})
	})
	return cmd
}
