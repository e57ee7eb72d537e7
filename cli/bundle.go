package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"flash/vmm/bundle"
	"flash/vmm/host"
)

func (a *app) bundleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "build, import, list and remove what VMs boot from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("bundle needs one of build, import, ls, rm")}
		},
	}
	cmd.AddCommand(a.bundleBuildCmd(), a.bundleImportCmd(), a.bundleLsCmd(), a.bundleRmCmd())
	return cmd
}

func (a *app) bundleBuildCmd() *cobra.Command {
	var r host.BuildRequest
	cmd := &cobra.Command{
		Use:   "build KIND",
		Short: "build a known bundle: busybox, debian",
		Long: `build makes one of the known bundles and names it after its kind, or --name.

Exit codes: 0 built, 1 refused or failed, 2 wrong usage.`,
		Args:              exactArgs("a kind: busybox or debian"),
		ValidArgsFunction: cobra.FixedCompletions(bundle.Kinds, cobra.ShellCompDirectiveNoFileComp),
	}
	cmd.Flags().StringVar(&r.Name, "name", "", "the bundle's name (default: the kind)")
	cmd.Flags().IntVar(&r.DiskMiB, "disk-mib", 0, "size of the root disk in MiB (default: the kind's)")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		r.Kind = args[0]
		return a.makeBundle(func(progress func(host.Progress)) (host.Bundle, error) {
			return api.BuildBundle(ctx, r, progress)
		})
	})
	return cmd
}

func (a *app) bundleImportCmd() *cobra.Command {
	var r host.ImportRequest
	cmd := &cobra.Command{
		Use:   "import PATH",
		Short: "import a docker-save archive or an OCI layout",
		Long: `import makes a bundle from a docker-save archive or an OCI image layout. The daemon reads the path.

Exit codes: 0 imported, 1 refused or failed, 2 wrong usage.`,
		Args: exactArgs("the path of an archive or a layout"),
	}
	cmd.Flags().StringVar(&r.Name, "name", "", "the bundle's name (default: from the file's)")
	cmd.Flags().IntVar(&r.DiskMiB, "disk-mib", 0, "size of the root disk in MiB (default: what fits)")
	cmd.RunE = a.withAPI(func(ctx context.Context, api host.API, args []string) error {
		path, err := filepath.Abs(args[0]) // the daemon has another working directory
		if err != nil {
			return host.Errorf(host.CodeInvalid, "give an absolute path", "import %s: %w", args[0], err)
		}
		r.Path = path
		return a.makeBundle(func(progress func(host.Progress)) (host.Bundle, error) {
			return api.ImportBundle(ctx, r, progress)
		})
	})
	return cmd
}

func (a *app) makeBundle(work func(progress func(host.Progress)) (host.Bundle, error)) error {
	bar := a.progressBar()
	b, err := work(bar.step)
	bar.done()
	if err != nil {
		return err
	}
	return a.show(b, func() string {
		return fmt.Sprintf("bundle %s, a disk of %d MiB, %s new in the store\n", b.Name, b.DiskMiB, kib(b.NewBytes))
	})
}

func (a *app) bundleLsCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "list the bundles",
		Args:    cobra.NoArgs,
		RunE: a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
			bundles, err := api.Bundles(ctx)
			if err != nil {
				return err
			}
			return a.show(list(bundles), func() string {
				rows := make([][]string, len(bundles))
				for i, b := range bundles {
					rows[i] = []string{b.Name, fmt.Sprintf("%d MiB", b.DiskMiB), age(time.Now(), b.Created), printable(b.Source, maxLabelWidth)}
				}
				return table([]string{"NAME", "\tDISK", "\tAGE", "SOURCE"}, rows)
			})
		}),
	}
}

func (a *app) bundleRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME…",
		Short: "remove bundles",
		Long: `rm removes a bundle's name. VMs made from it keep all they need.

Exit codes: 0 removed, 1 refused or failed, 2 wrong usage.`,
		Args:              someArgs("a bundle's name"),
		ValidArgsFunction: a.completeBundles,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			for i, name := range args {
				if err := api.RemoveBundle(ctx, name); err != nil {
					return err
				}
				if !a.json {
					fmt.Fprintf(a.stdout, "bundle %s is removed\n", args[i])
				}
			}
			if a.json {
				return a.printJSON(map[string][]string{"removed": args})
			}
			return nil
		}),
	}
}
