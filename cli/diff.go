package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"flash/vmm/host"
)

func (a *app) diffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff VM FROM [TO]",
		Short: "show what changed between two checkpoints",
		Long: `diff shows the files, memory pages and disk blocks that differ between two checkpoints. TO defaults to the newest.
+ is an added file, - a removed one, ~ one whose content, mode or owner changed; a directory ends with a slash. Files are
those on the root disk; what the guest had only in memory, not yet written back, isn't seen ("sync" in the guest helps).

Exit codes: 0, also when they differ; 1 failed; 2 wrong usage.`,
		Example: "  flash diff agent-1 3 4",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return exactArgs("VM", "a checkpoint's number")(cmd, args)
		},
		ValidArgsFunction: a.completeVMThenCheckpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := host.DiffRequest{ID: args[0]}
			var err error
			if r.From, err = parseNumber(args[1]); err != nil {
				return err
			}
			if len(args) == 3 {
				to, err := parseNumber(args[2])
				if err != nil {
					return err
				}
				r.To = &to
			}
			return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
				d, err := api.Diff(ctx, r)
				if err != nil {
					return err
				}
				d.Files = list(d.Files)
				return a.show(d, func() string { return diffText(d) })
			})(cmd, args)
		},
	}
}

func diffText(d host.Diff) string {
	var b strings.Builder
	marks := map[string]string{"added": "+", "removed": "-", "modified": "~"}
	for _, f := range d.Files {
		mark := marks[f.Change]
		if mark == "" {
			mark = f.Change
		}
		fmt.Fprintf(&b, "%s %s", mark, printablePath(f.Path))
		if f.Change != "removed" && !strings.HasSuffix(f.Path, "/") {
			fmt.Fprintf(&b, "  %s", kib(f.Bytes))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d → %d: %d files, %d memory pages, %d disk blocks\n", d.From, d.To, len(d.Files), d.MemoryPages, d.DiskBlocks)
	if d.Note != "" {
		fmt.Fprintf(&b, "note: %s\n", printable(d.Note, 0))
	}
	return b.String()
}

// printablePath quotes a path that a terminal wouldn't show as it is.
func printablePath(path string) string {
	if printable(path, 0) == path {
		return path
	}
	return strconv.Quote(path)
}
