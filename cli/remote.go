package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"flash/store/offsite"
	"flash/vmm/host"
)

func (a *app) remoteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remote",
		Short: "object storage: where histories are kept beyond this host",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("remote needs one of add, ls, rm, unlock")}
		},
	}
	cmd.AddCommand(a.remoteAddCmd(), a.remoteLsCmd(), a.remoteRmCmd(), a.remoteUnlockCmd())
	return cmd
}

func (a *app) remoteAddCmd() *cobra.Command {
	var r host.AddRemoteRequest
	var secret secretFlags
	cmd := &cobra.Command{
		Use:   "add NAME URL",
		Short: "make a remote known: s3://bucket/prefix or file:///path",
		Long: `add makes a bucket, or a folder of a disk or a network share, known as a remote, and prepares it where nothing is there yet.

Credentials for S3 come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the AWS files, or the machine's role; they are
never stored. --encrypt seals everything before it leaves this host: with a passphrase (asked for, or FLASH_PASSPHRASE), or
with a key of a file (--key-file, made if it isn't there). Who loses both loses what is there; flash key export keeps a way in.

Exit codes: 0 added, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash remote add backup s3://my-bucket/flash --region eu-central-1\n" +
			"  flash remote add local s3://test --endpoint http://127.0.0.1:9000\n" +
			"  flash remote add nas file:///mnt/nas/flash --encrypt",
		Args: exactArgs("NAME", "a URL"),
	}
	f := cmd.Flags()
	f.StringVar(&r.Endpoint, "endpoint", "", "URL of an S3 server that isn't AWS")
	f.StringVar(&r.Region, "region", "", "the bucket's region")
	f.BoolVar(&r.Sealed, "encrypt", false, "seal everything before it leaves this host")
	f.Float64Var(&r.CacheGiB, "cache-gib", 0, "room for what is fetched from there (default 4)")
	f.Float64Var(&r.RateMiB, "rate-mib", 0, "at most so many MiB a second (default: no bound)")
	secret.add(cmd)
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		r.Name, r.URL = args[0], args[1]
		var err error
		r.RemoteSecrets, err = a.remoteSecrets(secret, r.Sealed, true)
		if err != nil {
			return err
		}
		r.KeyFile = secret.keyFile
		made, err := api.AddRemote(ctx, r)
		if err != nil {
			return err
		}
		return a.show(made, func() string {
			return fmt.Sprintf("%s is known; flash push VM %s sends a VM's history there\n", made.Name, made.Name)
		})
	})
	return cmd
}

// secretFlags say where the key of an encrypted remote comes from.
type secretFlags struct{ keyFile, passphraseFile string }

func (s *secretFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.keyFile, "key-file", "", "file of the key (default: a passphrase)")
	cmd.Flags().StringVar(&s.passphraseFile, "passphrase-file", "", "file whose first line is the passphrase (default: FLASH_PASSPHRASE, or it is asked for)")
}

// remoteSecrets collects what opens a remote from the environment and the user, never from arguments: others can read those.
func (a *app) remoteSecrets(f secretFlags, sealed, fresh bool) (s host.RemoteSecrets, err error) {
	s.AccessKey, s.SecretKey, s.SessionToken = a.getenv("AWS_ACCESS_KEY_ID"), a.getenv("AWS_SECRET_ACCESS_KEY"), a.getenv("AWS_SESSION_TOKEN")
	if !sealed {
		return s, nil
	}
	if f.keyFile != "" {
		s.Key, err = readOrMakeKey(f.keyFile, fresh)
		return s, err
	}
	s.Passphrase, err = a.passphrase(f.passphraseFile, fresh)
	return s, err
}

// passphrase finds one: in a file, in the environment, or by asking on the terminal, twice for a new one.
func (a *app) passphrase(file string, fresh bool) (string, error) {
	if file != "" {
		p, err := os.ReadFile(file)
		if err != nil {
			return "", host.Errorf(host.CodeInvalid, "give a file you may read", "the passphrase: %w", err)
		}
		line, _, _ := strings.Cut(string(p), "\n")
		return strings.TrimRight(line, "\r"), nil
	}
	if p := a.getenv("FLASH_PASSPHRASE"); p != "" {
		return p, nil
	}
	if a.stdin == nil || !term.IsTerminal(int(a.stdin.Fd())) {
		return "", host.Errorf(host.CodeRemoteLocked, "set FLASH_PASSPHRASE, or give --passphrase-file or --key-file", "there is no terminal to ask for the passphrase on")
	}
	ask := func(prompt string) (string, error) {
		fmt.Fprint(a.stderr, prompt)
		p, err := term.ReadPassword(int(a.stdin.Fd()))
		fmt.Fprintln(a.stderr)
		return string(p), err
	}
	first, err := ask("passphrase: ")
	if err != nil || !fresh {
		return first, err
	}
	again, err := ask("again: ")
	if err == nil && again != first {
		err = host.Errorf(host.CodeInvalid, "type it twice the same", "the passphrases differ")
	}
	return first, err
}

func (a *app) remoteLsCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ls [NAME]",
		Aliases: []string{"list"},
		Short:   "list the remotes, or the VMs in one",
		Long: `ls lists the remotes this host knows; with a name, the VMs whose histories are there and the host that owns each.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeRemotes,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			if len(args) == 1 {
				refs, err := api.RemoteVMs(ctx, args[0])
				if err != nil {
					return err
				}
				return a.show(list(refs), func() string { return refTable(refs, time.Now()) })
			}
			remotes, err := api.Remotes(ctx)
			if err != nil {
				return err
			}
			return a.show(list(remotes), func() string { return remoteTable(remotes) })
		}),
	}
}

func remoteTable(remotes []host.Remote) string {
	rows := make([][]string, len(remotes))
	for i, r := range remotes {
		follows := "-"
		if r.ReplicateAll {
			follows = "all VMs"
		} else if len(r.ReplicateVMs) > 0 {
			follows = strings.Join(r.ReplicateVMs, " ")
		}
		sealed := "no"
		if r.Sealed {
			sealed = "yes"
		}
		rows[i] = []string{r.Name, r.State, r.URL, sealed, follows, printable(r.Reason, maxLabelWidth)}
	}
	return table([]string{"NAME", "STATE", "URL", "ENCRYPTED", "FOLLOWS", ""}, rows)
}

func refTable(refs []offsite.Ref, now time.Time) string {
	rows := make([][]string, len(refs))
	for i, r := range refs {
		owner := r.Host
		if r.Mine {
			owner += " (this host)"
		}
		rows[i] = []string{r.VM, fmt.Sprint(r.Checkpoints), fmt.Sprint(r.Head), age(now, r.Pushed), printable(owner, maxLabelWidth)}
	}
	return table([]string{"VM", "\tCHECKPOINTS", "\tHEAD", "\tPUSHED", "OWNER"}, rows)
}

func (a *app) remoteRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME[:VM]",
		Short: "forget a remote, or remove a VM's history from it",
		Long: `rm NAME makes this host forget a remote; what is there stays there. rm NAME:VM removes that VM's history from the remote; the
space comes back with flash gc --remote NAME --apply.

Exit codes: 0 removed, 1 refused or failed, 2 wrong usage.`,
		Args:              exactArgs("NAME or NAME:VM"),
		ValidArgsFunction: a.completeRemotes,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			name, vm, one := strings.Cut(args[0], ":")
			if one {
				if err := api.RemoveRemoteVM(ctx, name, vm); err != nil {
					return err
				}
			} else if err := api.RemoveRemote(ctx, name); err != nil {
				return err
			}
			return a.show(map[string]string{"removed": args[0]}, func() string { return args[0] + " is removed\n" })
		}),
	}
}

func (a *app) remoteUnlockCmd() *cobra.Command {
	var secret secretFlags
	cmd := &cobra.Command{
		Use:   "unlock NAME",
		Short: "give the daemon the passphrase and credentials of a remote",
		Long: `unlock gives the running daemon what opens a remote: the passphrase or key of an encrypted one, and the AWS_… variables of
this shell. The daemon keeps them in memory only, so it is to be done again after it has ended.

Exit codes: 0 unlocked, 1 refused or failed, 2 wrong usage.`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: a.completeRemotes,
	}
	secret.add(cmd)
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		remotes, err := api.Remotes(ctx)
		if err != nil {
			return err
		}
		sealed := false
		for _, r := range remotes {
			if r.Name == args[0] {
				sealed = r.Sealed
			}
		}
		secrets, err := a.remoteSecrets(secret, sealed, false)
		if err != nil {
			return err
		}
		r, err := api.ChangeRemote(ctx, host.ChangeRemoteRequest{Name: args[0], Secrets: &secrets})
		if err != nil {
			return err
		}
		return a.show(r, func() string { return fmt.Sprintf("%s is %s\n", r.Name, r.State) })
	})
	return cmd
}

func (a *app) completeRemotes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, func(ctx context.Context, api host.API) ([]string, error) {
		remotes, err := api.Remotes(ctx)
		var words []string
		for _, r := range remotes {
			words = append(words, describe(r.Name, r.URL))
		}
		return words, err
	})
}
