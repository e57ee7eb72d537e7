package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"flash/cas/bucket"
	"flash/cas/bucket/dir"
	"flash/cas/bucket/seal"
	"flash/vmm/host"
)

// maxDebugBytes is the longest object that is shown: packs are some MiB, refs with their histories at most 1 GiB.
const maxDebugBytes = 1<<30 + 1<<20

func (a *app) debugObjectCmd() *cobra.Command {
	var folder, keyFile string
	cmd := &cobra.Command{
		Use:   "object FILE|-",
		Short: "an object of a remote, whatever its kind",
		Long: `object shows one object of a remote: marker, encrypted object, ref, history, catalogue, pack, snapshot record, node, hold,
lease, condemned packs. It needs neither a daemon nor a remote that is known here.

With --bucket DIR, a copy of the bucket or the folder of a file:// remote, the argument is a key there, as in vms/agent-1;
without one the keys are listed. Objects of an encrypted remote are opened then, with FLASH_PASSPHRASE or --key-file, which
takes an exported key as well.

Exit codes: 0, 1 failed, 2 wrong usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(cmd *cobra.Command, args []string) error {
			d, err := a.debugObject(cmd.Context(), folder, keyFile, args)
			if err != nil {
				return err
			}
			return a.show(d, func() string { return dumpText(d) })
		}),
	}
	cmd.Flags().StringVar(&folder, "bucket", "", "folder that holds the bucket; the argument is a key in it")
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file of the key of an encrypted bucket")
	return cmd
}

func (a *app) debugObject(ctx context.Context, folder, keyFile string, args []string) (host.DebugDump, error) {
	if folder == "" && len(args) == 0 {
		return host.DebugDump{}, usageError{errors.New("debug object needs a file, - for what comes in, or --bucket DIR")}
	}
	if folder != "" {
		return a.debugBucket(ctx, folder, keyFile, args)
	}
	p, err := a.readObject(args[0])
	if err != nil {
		return host.DebugDump{}, host.Errorf(host.CodeInvalid, "give a file, or - for what comes in", "%w", err)
	}
	return dumpObject(p)
}

// debugBucket shows an object of a folder that holds a bucket, or lists what is there.
func (a *app) debugBucket(ctx context.Context, folder, keyFile string, args []string) (host.DebugDump, error) {
	below, err := dir.Open(folder)
	if err != nil {
		return host.DebugDump{}, host.Errorf(host.CodeInvalid, "give the folder that has flash.json", "%w", err)
	}
	defer below.Close()
	b, err := a.openSealed(ctx, below, keyFile)
	if err != nil {
		return host.DebugDump{}, host.Errorf(host.CodeInvalid, "without FLASH_PASSPHRASE and --key-file its objects are shown as they are", "%w", err)
	}
	if len(args) == 0 {
		return listObjects(ctx, b)
	}
	p, _, err := b.Get(ctx, args[0], maxDebugBytes)
	if err != nil {
		return host.DebugDump{}, host.Errorf(host.CodeInvalid, "without a key, the keys are listed", "%w", err)
	}
	return dumpObject(p)
}

func (a *app) readObject(name string) ([]byte, error) {
	from := io.Reader(a.stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	p, err := io.ReadAll(io.LimitReader(from, maxDebugBytes+1))
	if err == nil && len(p) > maxDebugBytes {
		err = fmt.Errorf("it has more than %d bytes", maxDebugBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read the object %s: %w", name, err)
	}
	return p, nil
}

// openSealed wraps an encrypted bucket. A bucket without a marker is looked at as it is: it may be a part of one.
func (a *app) openSealed(ctx context.Context, b bucket.Bucket, keyFile string) (bucket.Bucket, error) {
	m, _, err := seal.ReadMarker(ctx, b)
	if errors.Is(err, seal.ErrForeign) || errors.Is(err, seal.ErrEmpty) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	passphrase := a.getenv("FLASH_PASSPHRASE")
	if !m.Sealed() || keyFile == "" && passphrase == "" {
		return b, nil
	}
	var secret seal.Secret
	if keyFile != "" {
		text, err := os.ReadFile(keyFile)
		if err != nil {
			return nil, err
		}
		secret, err = seal.KeyFile(text)
		clear(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keyFile, err)
		}
	} else if secret, err = seal.Passphrase([]byte(passphrase)); err != nil {
		return nil, err
	}
	defer secret.Wipe()
	keys, err := m.Open(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Location(), err)
	}
	defer keys.Wipe()
	return seal.Wrap(b, keys), nil
}

func listObjects(ctx context.Context, b bucket.Bucket) (host.DebugDump, error) {
	d := newDump("\tBYTES", "CHANGED", "KEY")
	for info, err := range b.List(ctx, "") {
		if err != nil {
			return d.DebugDump, err
		}
		d.row(info.Bytes, info.Modified.UTC().Format(dumpTime), info.Key)
	}
	return d.DebugDump, nil
}
