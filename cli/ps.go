package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) psCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ps [VM…]",
		Aliases: []string{"ls", "list"},
		Short:   "list the VMs",
		Long: `ps lists all VMs, or those named.

Exit codes: 0, 1 failed or a named VM isn't there, 2 wrong usage.`,
		ValidArgsFunction: a.completeVMs,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			vms, err := api.List(ctx)
			if len(args) > 0 {
				vms, err = eachVM(args, func(id string) (host.VM, error) { return api.Get(ctx, id) })
			}
			if err != nil {
				return err
			}
			return a.show(list(vms), func() string { return vmTable(vms) + lagLines(vms, time.Now()) })
		}),
	}
}

// eachVM calls f for every name and stops at the first failure.
func eachVM(ids []string, f func(id string) (host.VM, error)) ([]host.VM, error) {
	var vms []host.VM
	for _, id := range ids {
		vm, err := f(id)
		if err != nil {
			return vms, err
		}
		vms = append(vms, vm)
	}
	return vms, nil
}

// lagLines tells which VMs have checkpoints that aren't in the remotes they follow to.
func lagLines(vms []host.VM, now time.Time) string {
	var b strings.Builder
	for _, vm := range vms {
		for _, l := range vm.Replication {
			if l.Checkpoints > 0 {
				since := ""
				if l.Since != nil {
					since = ", the oldest since " + age(now, *l.Since)
				}
				fmt.Fprintf(&b, "%s: %d checkpoints aren't in %s yet%s\n", vm.ID, l.Checkpoints, l.Remote, since)
			}
			if l.Error != "" {
				fmt.Fprintf(&b, "%s: not followed to %s: %s\n", vm.ID, l.Remote, printable(l.Error, 0))
			}
		}
	}
	return b.String()
}
