package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"flash/vmm/guest"
	"flash/vmm/host"
)

func (a *app) execCmd() *cobra.Command {
	var r host.ExecRequest
	var interactive, checkpoint, noCheckpoint bool
	var env []string
	cmd := &cobra.Command{
		Use:   "exec [FLAG…] VM [[FLAG…] --] COMMAND [ARG…]",
		Short: "run a command in a VM",
		Long: `exec runs a command in a VM and returns when its own process has ended. In a VM run with --checkpoints the whole VM is
saved first, so that flash rewind undoes the command. Background processes the command leaves go on running.

stdin goes to the command when it isn't a terminal, or with -i or -t. Signals go to the command; the third ^C kills it with
all it has started. With --json the output is x-ndjson on stdout, as the HTTP API gives it.

Exit codes: the command's own; 125 when it never ran; 1 when it was lost while it ran; 2 wrong usage.`,
		Example: "  flash exec agent-1 -- sh -c 'cd /work/project && sh run-tests.sh'\n  flash exec -t agent-1 sh\n  flash exec agent-1 --user nobody -- id",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			r.ID, r.Command.Argv, err = splitExec(cmd, args)
			return err
		},
		ValidArgsFunction: a.completeOneVM,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the command's flags are its own
	f.StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE for the command, or NAME to pass yours on; repeatable")
	f.StringVarP(&r.Command.Cwd, "cwd", "w", "", "working directory (default: the user's home)")
	f.StringVarP(&r.Command.User, "user", "u", "", "user name or UID[:GID] (default: root)")
	f.DurationVar(&r.Command.Timeout, "timeout", 0, "kill it with all it has started after this long, e.g. 30s")
	f.BoolVarP(&r.Command.TTY, "tty", "t", false, "give it a terminal")
	f.BoolVarP(&interactive, "interactive", "i", false, "pass stdin on though it is a terminal")
	f.BoolVar(&checkpoint, "checkpoint", false, "take a checkpoint first")
	f.BoolVar(&noCheckpoint, "no-checkpoint", false, "don't take a checkpoint first")
	f.StringVar(&r.RequestID, "request-id", "", "the same id again gives the same answer")
	cmd.MarkFlagsMutuallyExclusive("checkpoint", "no-checkpoint")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if r.Command.Timeout < 0 {
			return usageError{errors.New("--timeout is a duration like 30s")}
		}
		if checkpoint || noCheckpoint {
			r.Checkpoint = &checkpoint
		}
		r.Command.Env = a.environment(env)
		r.Command.Stdin = interactive || r.Command.TTY || !isTerminal(a.stdin)
		return a.run(func(cmd *cobra.Command, _ []string) error { return a.exec(cmd.Context(), r) })(cmd, args)
	}
	return cmd
}

// splitExec gives the VM and the command of exec's arguments. Parsing of flags has ended at the VM. What follows it is
// the command, unless it begins with a dash: then it is flags of ours up to a --, and the command comes after that. A
// later -- is the command's own, as in flash exec agent-1 git checkout -- FILE.
func splitExec(cmd *cobra.Command, args []string) (id string, argv []string, err error) {
	flags := cmd.Flags()
	switch done := flags.ArgsLenAtDash() >= 0; { // a -- before the VM has ended our flags already
	case len(args) == 0:
		return "", nil, exactArgs("VM")(cmd, args)
	case len(args) > 1 && !done && strings.HasPrefix(args[1], "-"):
		if err := flags.Parse(args[1:]); err != nil {
			return "", nil, err
		}
		argv = flags.Args()
		if help, _ := flags.GetBool("help"); help {
			return "", nil, pflag.ErrHelp
		}
		if len(argv) > 0 && flags.ArgsLenAtDash() < 0 {
			return "", nil, fmt.Errorf("between %s and the command %s a -- is needed where flags follow the VM", args[0], argv[0])
		}
	default:
		argv = args[1:]
	}
	if len(argv) == 0 {
		return "", nil, fmt.Errorf("%s needs a command", cmd.CommandPath())
	}
	return args[0], argv, nil
}

// environment turns NAME into NAME=VALUE of ours; a name we haven't got is left out.
func (a *app) environment(env []string) []string {
	var all []string
	for _, e := range env {
		if strings.Contains(e, "=") {
			all = append(all, e)
		} else if v := a.getenv(e); v != "" {
			all = append(all, e+"="+v)
		}
	}
	return all
}

func (a *app) exec(ctx context.Context, r host.ExecRequest) error {
	api, err := a.connect(ctx)
	if err != nil {
		return notRun{err}
	}
	return a.converse(ctx, r.Command.TTY, r.Command.Stdin, func(ctx context.Context, s guest.Streams, size guest.WindowSize) (host.ExecResult, error) {
		r.Command.Rows, r.Command.Cols = size.Rows, size.Cols
		return api.Exec(ctx, r, s)
	})
}
