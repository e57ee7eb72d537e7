package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flash/store/offsite"
	"flash/vmm/host"
)

func (a *app) gcRemote(cmd *cobra.Command, remote string, apply bool) error {
	return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
		report, err := api.CollectRemote(ctx, remote, apply)
		if err != nil {
			return err
		}
		return a.show(report, func() string { return gcRemoteText(report) })
	})(cmd, nil)
}

func gcRemoteText(r offsite.GCReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories in %d packs; no history reaches %d packs, %s\n", r.Refs, r.Packs, r.UnreachedPacks, kib(r.UnreachedBytes))
	fmt.Fprintf(&b, "%d packs are condemned and wait for the grace to end; %d are removed, %s freed\n", r.Condemned, r.FreedPacks, kib(r.FreedBytes))
	if !r.Applied && r.UnreachedPacks > 0 {
		b.WriteString("nothing was changed; --apply does it\n")
	}
	return b.String()
}
