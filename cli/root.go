package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// Version is this program's.
const Version = "0.1.0"

// Main runs the program and gives its exit code.
func Main() int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, open: open}
	return a.main(context.Background(), os.Args[1:])
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if a.client != nil {
		a.client.Close()
	}
	if !a.started && !a.json {
		// Wrong usage is told as JSON too, also when it has kept --json from being parsed.
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		a.json = slices.Contains(args[:end], "--json")
	}
	return a.report(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "flash",
		Short: "virtual machines whose every command is an undo point",
		Long: `flash runs virtual machines whose every command is an undo point. Before a command runs, the whole VM – memory, CPU,
devices, disk – is saved as a checkpoint in a deduplicated store. Any checkpoint can be rewound to, or forked into new VMs.

  flash bundle build busybox
  flash run --bundle busybox --id agent-1 --checkpoints --detach
  flash exec agent-1 -- sh -c 'rm -rf /work'
  flash history agent-1
  flash rewind agent-1 1

Exit codes: 0 done, 1 refused or failed, 2 wrong usage; exec gives 125 when the command never ran, else the command's own.
With --json, results and errors are JSON on stdout.`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			cmd.Usage()
			return usageError{errors.New("a command is missing")}
		},
	}
	root.PersistentFlags().StringVar(&a.home, "home", "", "folder of all state (default $FLASH_HOME, else /var/lib/flash as root, else $XDG_DATA_HOME/flash)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results and errors as JSON on stdout")
	root.AddGroup(
		&cobra.Group{ID: "vm", Title: "Machines:"},
		&cobra.Group{ID: "time", Title: "Checkpoints:"},
		&cobra.Group{ID: "in", Title: "Inside a machine:"},
		&cobra.Group{ID: "away", Title: "Beyond this host:"},
		&cobra.Group{ID: "host", Title: "This host:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("vm", a.runCmd(), a.psCmd(), a.stopCmd(), a.startCmd(), a.resumeCmd(), a.updateCmd(), a.rmCmd())
	add("time", a.checkpointCmd(), a.historyCmd(), a.rewindCmd(), a.forkCmd(), a.pinCmd(), a.unpinCmd(), a.diffCmd(), a.ledgerCmd())
	add("in", a.execCmd(), a.attachCmd(), a.cpCmd(), a.logsCmd())
	add("away", a.remoteCmd(), a.pushCmd(), a.pullCmd(), a.replicateCmd(), a.keyCmd())
	add("host", a.bundleCmd(), a.gcCmd(), a.checkCmd(), a.debugCmd(), a.serveCmd(), a.doctorCmd(), a.demoCmd(), a.benchCmd(), a.versionCmd())
	root.AddCommand(tryStoreCmd())
	root.SetHelpCommandGroupID("host")
	root.SetCompletionCommandGroupID("host")
	return root
}

// exactArgs is cobra.ExactArgs that says what is missing by name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s needs %s", cmd.CommandPath(), names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%s takes nothing after %s, got %q", cmd.CommandPath(), names[len(names)-1], args[len(names)])
		}
		return nil
	}
}

// someArgs wants one or more of what is named.
func someArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs %s", cmd.CommandPath(), name)
		}
		return nil
	}
}
