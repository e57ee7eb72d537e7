package cli

import (
	"context"

	"github.com/spf13/cobra"

	"flash/cas/bucket"
	"flash/vmm/host"
)

func (a *app) doctorRemoteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remote NAME",
		Short: "try what flash relies on at a remote's real endpoint",
		Long: `remote tries conditional writes, lists after writes, ranged reads, checksums, the clocks and the right to delete, with objects
of its own that it removes again. Each check that isn't ok says its consequence and its remedy.

Exit codes: 0 ok, warnings included; 1 something keeps flash from working there; 2 wrong usage.`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: a.completeRemotes,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			probed, err := api.ProbeRemote(ctx, args[0])
			if err != nil {
				return err
			}
			checks := []check{}
			for _, p := range probed {
				checks = append(checks, check{p.Name, probeResults[p.Result], p.Evidence, p.Consequence, p.Remedy})
			}
			return a.showChecks(checks)
		}),
	}
}

// probeResults turns a probe's words into doctor's: what couldn't be tried is never shown as fine.
var probeResults = map[bucket.Result]string{bucket.OK: resultOK, bucket.Failed: resultFailed, bucket.Unknown: resultWarning}
