package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

// Completion asks the daemon that runs, briefly, and is silent when none does: pressing tab starts nothing and prints
// no errors.

func (a *app) ask(cmd *cobra.Command, f func(ctx context.Context, api host.API) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	home, err := a.homeDir()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := httpapi.NewClient(socketPath(home))
	defer c.Close()
	words, err := f(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// describe joins a word and what the shell shows beside it.
func describe(word, about string) string { return word + "\t" + printable(about, maxLabelWidth) }

// completeVMs offers the VMs that aren't named yet.
func (a *app) completeVMs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.ask(cmd, func(ctx context.Context, api host.API) ([]string, error) {
		vms, err := api.List(ctx)
		var words []string
		for _, vm := range vms {
			if !slices.Contains(args, vm.ID) {
				words = append(words, describe(vm.ID, vm.State+", "+vm.Bundle))
			}
		}
		return words, err
	})
}

func (a *app) completeOneVM(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeVMs(cmd, args, text)
}

func (a *app) completeVMThenCheckpoint(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	most := strings.Count(cmd.Use, " ") // "rewind VM N": two arguments
	switch {
	case len(args) == 0:
		return a.completeVMs(cmd, args, text)
	case len(args) < most:
		return a.completeCheckpointOfFirst(cmd, args, text)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeCheckpointOfFirst offers the checkpoints of the first argument's VM, newest first.
func (a *app) completeCheckpointOfFirst(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, func(ctx context.Context, api host.API) ([]string, error) {
		cps, err := api.History(ctx, args[0])
		var words []string
		for _, cp := range slices.Backward(cps) {
			words = append(words, describe(fmt.Sprint(cp.Number), cp.Label))
		}
		return words, err
	})
}

func (a *app) completeBundles(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.ask(cmd, func(ctx context.Context, api host.API) ([]string, error) {
		bundles, err := api.Bundles(ctx)
		var words []string
		for _, b := range bundles {
			words = append(words, describe(b.Name, b.Source))
		}
		return words, err
	})
}
