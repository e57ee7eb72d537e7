package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flash/vmm/guest"
	"flash/vmm/host"
)

func (a *app) attachCmd() *cobra.Command {
	var showList, interactive bool
	cmd := &cobra.Command{
		Use:   "attach VM [EXEC]",
		Short: "go on with the output of a command that runs",
		Long: `attach shows the output of a command that runs in a VM, or ended not long ago, from what the guest still has: after a
rewind or a resume the commands that ran at the checkpoint run again. EXEC is as --list shows it; without it, the newest.

Exit codes: the command's own; 125 when there is nothing to attach to; 2 wrong usage.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactArgs("VM")(cmd, args)
		},
		ValidArgsFunction: a.completeVMThenExec,
	}
	cmd.Flags().BoolVar(&showList, "list", false, "list what can be attached to")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "pass stdin on")
	cmd.RunE = a.run(func(cmd *cobra.Command, args []string) error {
		api, err := a.connect(cmd.Context())
		if err != nil {
			return notRun{err}
		}
		if showList {
			return a.listExecs(cmd.Context(), api, args[0])
		}
		exec := ""
		if len(args) == 2 {
			exec = args[1]
		}
		return a.converse(cmd.Context(), interactive && isTerminal(a.stdin), interactive, func(ctx context.Context, s guest.Streams, _ guest.WindowSize) (host.ExecResult, error) {
			return api.AttachExec(ctx, args[0], exec, s)
		})
	})
	return cmd
}

func (a *app) listExecs(ctx context.Context, api host.API, id string) error {
	execs, err := api.Execs(ctx, id)
	if err != nil {
		return err
	}
	return a.show(list(execs), func() string {
		rows := make([][]string, len(execs))
		for i, e := range execs {
			state := "running"
			if e.Exit != nil {
				state = fmt.Sprintf("exit %d", e.Exit.Code)
			}
			rows[i] = []string{e.ID, state, printable(strings.Join(e.Argv, " "), maxLabelWidth)}
		}
		return table([]string{"EXEC", "STATE", "COMMAND"}, rows)
	})
}

func (a *app) completeVMThenExec(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeOneVM(cmd, args, text)
	}
	return a.ask(cmd, func(ctx context.Context, api host.API) ([]string, error) {
		execs, err := api.Execs(ctx, args[0])
		var words []string
		for _, e := range execs {
			words = append(words, describe(e.ID, strings.Join(e.Argv, " ")))
		}
		return words, err
	})
}
