package cli

import (
	"context"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) stopCmd() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "stop VM…",
		Short: "stop VMs; start goes on exactly there",
		Long: `stop checkpoints a VM's present and ends its machine. flash start goes on exactly where it was.
With --discard nothing is saved: start comes back to the newest checkpoint.

Exit codes: 0 stopped, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("VM"),
		ValidArgsFunction: a.completeVMs,
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "don't checkpoint the present first")
	cmd.RunE = a.changeVMs(func(ctx context.Context, api host.API, id string) (host.VM, error) {
		return api.Stop(ctx, host.StopRequest{ID: id, Discard: discard})
	})
	return cmd
}

// changeVMs is the code of a command that does one thing to each VM it names and shows what became of it.
func (a *app) changeVMs(f func(ctx context.Context, api host.API, id string) (host.VM, error)) func(*cobra.Command, []string) error {
	return a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		vms, err := eachVM(args, func(id string) (host.VM, error) {
			vm, err := f(ctx, api, id)
			if err == nil && !a.json {
				err = a.show(vm, func() string { return vmLine(vm) })
			}
			return vm, err
		})
		if err != nil || !a.json {
			return err
		}
		return a.printJSON(list(vms))
	})
}
