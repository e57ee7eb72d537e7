package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"flash/store"
	"flash/vmm/host"
)

const maxLedgerDataWidth = 100

func (a *app) ledgerCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ledger VM",
		Short: "show a VM's hash-chained record",
		Long: `ledger shows what was done to a VM, in order: created, exec, checkpoint, rewind, fork, resume. Each entry holds the
hash of the one before; the chain is verified before it is shown.

Exit codes: 0, 1 failed or the chain is broken, 2 wrong usage.`,
		Args:              exactArgs("VM"),
		ValidArgsFunction: a.completeOneVM,
		RunE: a.withAPI(func(ctx context.Context, api host.API, args []string) error {
			entries, err := api.Ledger(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(list(entries), func() string { return ledgerTable(entries) })
		}),
	}
}

func ledgerTable(entries []store.LedgerEntry) string {
	rows := make([][]string, len(entries))
	for i, e := range entries {
		rows[i] = []string{fmt.Sprint(e.Seq), e.Time.Local().Format(time.DateTime), e.Kind, fmt.Sprintf("%x", e.Hash[:4]), printable(string(e.Data), maxLedgerDataWidth)}
	}
	return table([]string{"\tSEQ", "TIME", "KIND", "HASH", "DATA"}, rows)
}
