package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"flash/vmm"
	"flash/vmm/host"
)

func (a *app) runCmd() *cobra.Command {
	var r host.CreateRequest
	var published []string
	var detach bool
	cmd := &cobra.Command{
		Use:   "run --bundle BUNDLE --id ID",
		Short: "make a VM and start it",
		Long: `run makes a VM from a bundle and starts it; it answers when the guest does.

With --checkpoints every exec first takes a checkpoint labelled with its command. Without --detach (and without --json)
the guest's console follows until it is interrupted; the VM goes on running then.

Exit codes: 0 running, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash run --bundle debian --id agent-1 --vcpus 1 --mem-mib 512 --checkpoints --detach -p 8080:80",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&r.Bundle, "bundle", "", "what to boot from; flash bundle ls shows them")
	f.StringVar(&r.ID, "id", "", "the VM's name")
	f.IntVar(&r.VCPUs, "vcpus", 0, "CPUs (default: the bundle's)")
	f.IntVar(&r.MemMiB, "mem-mib", 0, "memory in MiB (default: the bundle's)")
	f.BoolVar(&r.Checkpoints, "checkpoints", false, "take a checkpoint before every exec")
	f.StringArrayVarP(&published, "publish", "p", nil, "publish a guest's TCP port at the host's loopback, HOST:GUEST, or GUEST for any free one; repeatable")
	f.BoolVarP(&detach, "detach", "d", false, "return when the VM is up, without its console")
	f.StringVar(&r.Restart, "restart", host.RestartNo, "no, or always: the daemon brings it back from its newest checkpoint after a crash of it, of the daemon or of the host")
	cmd.RegisterFlagCompletionFunc("restart", cobra.FixedCompletions([]string{host.RestartNo, host.RestartAlways}, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&r.RequestID, "request-id", "", "the same id again gives the same answer")
	cmd.MarkFlagRequired("bundle")
	cmd.MarkFlagRequired("id")
	cmd.RegisterFlagCompletionFunc("bundle", a.completeBundles)
	cmd.RegisterFlagCompletionFunc("id", cobra.NoFileCompletions)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		r.Ports, err = parsePorts(published)
		return err
	}
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
		vm, err := api.Create(ctx, r)
		if err != nil {
			return err
		}
		if err := a.show(vm, func() string { return vmLine(vm) }); err != nil || detach || a.json {
			return err
		}
		return a.followConsole(ctx, api, vm.ID)
	})
	return cmd
}

// followConsole shows the console until the user has seen enough.
func (a *app) followConsole(ctx context.Context, api host.API, id string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	err := api.Logs(ctx, id, true, a.stdout)
	if ctx.Err() != nil {
		a.say("\n%s goes on running; flash exec %s -- COMMAND works in it, flash stop %s ends it", id, id, id)
		return nil
	}
	return err
}

// parsePorts reads HOST:GUEST and GUEST.
func parsePorts(published []string) ([]vmm.Port, error) {
	var ports []vmm.Port
	for _, p := range published {
		hostPart, guestPart, both := strings.Cut(p, ":")
		if !both {
			hostPart, guestPart = "0", p
		}
		h, err1 := strconv.ParseUint(hostPart, 10, 16)
		g, err2 := strconv.ParseUint(guestPart, 10, 16)
		if err1 != nil || err2 != nil || g == 0 {
			return nil, usageError{fmt.Errorf("-p takes HOST:GUEST, two port numbers, not %q", p)}
		}
		ports = append(ports, vmm.Port{Host: int(h), Guest: int(g)})
	}
	return ports, nil
}
