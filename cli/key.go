package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"flash/cas/bucket/seal"
	"flash/vmm/host"
)

func (a *app) keyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "the keys of encrypted remotes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("key needs one of export, rotate")}
		},
	}
	cmd.AddCommand(a.keyExportCmd(), a.keyRotateCmd())
	return cmd
}

func (a *app) keyExportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export REMOTE",
		Short: "write the key that opens an encrypted remote, whatever becomes of its passphrase",
		Long: `export writes the remote's own key as a key file, which --key-file takes. Who has it reads everything there, for ever:
keep it where a fire or a thief doesn't get both.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args:              exactArgs("REMOTE"),
		ValidArgsFunction: a.completeRemotes,
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "a new file for it (default: stdout)")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		r, err := api.RemoteKey(ctx, host.RemoteKeyRequest{Remote: args[0]})
		if err != nil {
			return err
		}
		if out == "" {
			return a.show(map[string]string{"key": string(r.Key)}, func() string { return string(r.Key) })
		}
		if err := writeSecret(out, r.Key); err != nil {
			return err
		}
		return a.show(map[string]string{"file": out}, func() string { return "the key is in " + out + "\n" })
	})
	return cmd
}

// writeSecret makes a new file that only its owner reads.
func writeSecret(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return host.Errorf(host.CodeInvalid, "give a new file in a folder you may write to", "write the key: %w", err)
	}
	return nil
}

// readOrMakeKey reads a key file; where fresh, one that isn't there is made.
func readOrMakeKey(path string, fresh bool) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && fresh {
		if text, err = seal.NewKeyFile(rand.Reader); err == nil {
			return text, writeSecret(path, text)
		}
	}
	if err != nil {
		return nil, host.Errorf(host.CodeInvalid, "give a key file you may read", "the key file: %w", err)
	}
	return text, nil
}

func (a *app) keyRotateCmd() *cobra.Command {
	var keyFile, passphraseFile string
	cmd := &cobra.Command{
		Use:   "rotate REMOTE",
		Short: "replace the passphrase or key file that opens an encrypted remote",
		Long: `rotate replaces the secret that the daemon opens the remote with by a new one: a passphrase (asked for, or FLASH_PASSPHRASE) or
a key file. What is stored there isn't sent again; the old secret opens it no longer.

Exit codes: 0 replaced, 1 refused or failed, 2 wrong usage.`,
		Args:              exactArgs("REMOTE"),
		ValidArgsFunction: a.completeRemotes,
	}
	cmd.Flags().StringVar(&keyFile, "new-key-file", "", "the new key file, made if it isn't there")
	cmd.Flags().StringVar(&passphraseFile, "new-passphrase-file", "", "file whose first line is the new passphrase")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		next, err := a.remoteSecrets(secretFlags{keyFile, passphraseFile}, true, true)
		if err != nil {
			return err
		}
		if _, err := api.RemoteKey(ctx, host.RemoteKeyRequest{Remote: args[0], Next: &next}); err != nil {
			return err
		}
		return a.show(map[string]string{"rotated": args[0]}, func() string { return args[0] + " opens with the new secret only\n" })
	})
	return cmd
}
