package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) pushCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "push VM[@N] [REMOTE]",
		Short: "send a VM's history to a remote",
		Long: `push sends a VM's history, or what of it led to checkpoint N, to a remote. Only what isn't there travels; a push that was
interrupted goes on where it was. The VM may run meanwhile. Without a name the only remote there is takes it.

Exit codes: 0 pushed, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash push agent-1 backup\n  flash push agent-1@3 backup",
		Args:    cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return a.completeRemotes(cmd, nil, text)
			}
			return a.completeOneVM(cmd, args, text)
		},
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			r := host.RemotePushRequest{}
			id, number, at := strings.Cut(args[0], "@")
			if r.VM = id; at {
				n, err := parseNumber(number)
				if err != nil {
					return err
				}
				r.Checkpoint = &n
			}
			if len(args) == 2 {
				r.Remote = args[1]
			}
			bar := a.progressBar()
			report, err := api.Push(ctx, r, bar.step)
			bar.done()
			if err != nil {
				return err
			}
			return a.show(report, func() string {
				return fmt.Sprintf("%s is there with %d checkpoints, up to %d; %s sent in %d packs, %s\n", report.VM, report.Checkpoints, report.Newest,
					kib(report.NewBytes), report.Packs, report.Took.Round(10*time.Millisecond))
			})
		}),
	}
}

func (a *app) pullCmd() *cobra.Command {
	var r host.RemotePullRequest
	cmd := &cobra.Command{
		Use:   "pull REMOTE:VM",
		Short: "bring a VM's history here from a remote",
		Long: `pull brings a VM here, stopped, with its history. --lazy brings the names only: it can be started, rewound and forked at
once, and pages are fetched when they are read. A pull of a VM that is here already brings it up to date.

The copy here isn't the owner: pushing it is refused. --take-over makes this host the owner, and the other one's pushes are
refused from then on.

Exit codes: 0 pulled, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash pull backup:agent-1\n  flash pull --lazy --take-over backup:agent-1",
		Args:    exactArgs("REMOTE:VM"),
	}
	cmd.Flags().StringVar(&r.As, "as", "", "its name here (default: as there)")
	cmd.Flags().BoolVar(&r.Lazy, "lazy", false, "fetch pages when they are read")
	cmd.Flags().BoolVar(&r.TakeOver, "take-over", false, "make this host the owner")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		remote, vm, ok := strings.Cut(args[0], ":")
		if !ok {
			remote, vm = "", args[0] // the only one there is
		}
		r.Remote, r.VM = remote, vm
		bar := a.progressBar()
		result, err := api.Pull(ctx, r, bar.step)
		bar.done()
		if err != nil {
			return err
		}
		return a.show(result, func() string {
			s := fmt.Sprintf("%s is here; %s fetched in %d packs, %s\n", result.VM, kib(result.NewBytes), result.Packs, result.Took.Round(10*time.Millisecond))
			if result.Notice != "" {
				s += result.Notice + "\n"
			}
			return s
		})
	})
	return cmd
}

func (a *app) replicateCmd() *cobra.Command {
	var vms []string
	var all, off bool
	cmd := &cobra.Command{
		Use:   "replicate REMOTE",
		Short: "let VMs' histories follow to a remote by themselves",
		Long: `replicate makes the daemon push behind every checkpoint, of the VMs named or of all. It is never in a checkpoint's way, goes
on after outages and restarts, and flash ps shows what isn't there yet. --off ends it.

Exit codes: 0 set, 1 refused or failed, 2 wrong usage.`,
		Example:           "  flash replicate --all backup\n  flash replicate --vm agent-1 backup\n  flash replicate --off --all backup",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeRemotes,
	}
	cmd.Flags().StringArrayVar(&vms, "vm", nil, "a VM that follows; repeatable")
	cmd.Flags().BoolVar(&all, "all", false, "all VMs of this host, also later ones")
	cmd.Flags().BoolVar(&off, "off", false, "follow no longer")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if all == (len(vms) > 0) {
			return usageError{fmt.Errorf("replicate needs either --vm or --all")}
		}
		return nil
	}
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		on := !off
		r := host.ChangeRemoteRequest{ReplicateVMs: map[string]bool{}}
		if len(args) == 1 {
			r.Name = args[0]
		}
		if all {
			r.ReplicateAll = &on
		}
		for _, id := range vms {
			r.ReplicateVMs[id] = on
		}
		changed, err := api.ChangeRemote(ctx, r)
		if err != nil {
			return err
		}
		return a.show(changed, func() string { return remoteTable([]host.Remote{changed}) })
	})
	return cmd
}
