package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) debugCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "look at the store's formats, and at the daemon",
		Long: `debug shows what is stored, as it is stored. Only rebuild changes anything.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("debug needs one of pack, node, snapshot, why, object, process, rebuild")}
		},
	}
	cmd.AddCommand(
		a.debugLike("pack [NAME]", "a pack's records; without a name, the packs", "pack", cobra.MaximumNArgs(1)),
		a.debugLike("node HASH", "a node of an image's tree", "node", exactArgs("a hash")),
		a.debugLike("snapshot VM@N|BUNDLE|HASH", "a snapshot: its facts and images", "snapshot", exactArgs("VM@N, a bundle or a hash")),
		a.debugLike("why HASH", "which checkpoints keep a chunk alive", "why", exactArgs("a hash")),
		a.debugObjectCmd(),
		a.rebuildCmd(),
		a.debugLike("process", "the daemon: its goroutines and its memory", "process", cobra.NoArgs),
	)
	return cmd
}

func (a *app) debugLike(use, short, what string, args cobra.PositionalArgs) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			dump, err := api.Debug(ctx, host.DebugRequest{What: what, Name: name})
			if err != nil {
				return err
			}
			return a.show(dump, func() string { return dumpText(dump) })
		}),
	}
}

func dumpText(d host.DebugDump) string {
	var facts [][]string
	for _, f := range d.Facts {
		facts = append(facts, []string{f.Name, printable(f.Value, 0)})
	}
	var b strings.Builder
	if len(facts) > 0 {
		_, rest, _ := strings.Cut(table([]string{"", ""}, facts), "\n")
		b.WriteString(rest)
	}
	if len(d.Columns) > 0 {
		if len(facts) > 0 {
			b.WriteString("\n")
		}
		b.WriteString(table(d.Columns, d.Rows))
	}
	return b.String()
}
