package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"flash/store"
	"flash/vmm/host"
)

func (a *app) rebuildCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "make a lost or damaged database again from the packs",
		Long: `rebuild is for when the database (meta in the home) is gone, or no daemon starts because it is damaged. It reads all packs
and makes a new one of the notes in them; a damaged one is set aside, and nothing is removed. It needs the home for itself.

What comes back: VMs, bundles, and every checkpoint whose memory and disks are whole in the packs here, with label, number and
parent (what lies in a remote alone is pulled again: flash pull). As they
were at the last clean end or gc of the daemon: pins, exit codes and moved heads, rules of single VMs, the ledger's end. What
doesn't: settings and the rules for all VMs; and the daemon doesn't collect by itself until flash gc --background on. All VMs
are stopped; flash start goes on from their newest checkpoint.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			home, err := a.homeDir()
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(home, "packs")); errors.Is(err, fs.ErrNotExist) {
				return host.Errorf(host.CodeNothingChecked, "is it the right --home?", "%s has no packs to rebuild from", home)
			}
			unlock, err := lockHome(cmd.Context(), home)
			if err != nil {
				return err
			}
			defer unlock()
			log, closeLog, err := a.daemonLog(home)
			if err != nil {
				return err
			}
			defer closeLog()
			report, err := rebuild(cmd.Context(), home, log)
			if errors.Is(err, store.ErrUsable) {
				return host.Errorf(host.CodeInvalid, "flash check looks for damage in it", "the database of %s can be opened: there is nothing to rebuild", home)
			}
			if err != nil {
				return host.Explain(err, home)
			}
			return a.show(report, func() string { return rebuildText(report) })
		}),
	}
}

func rebuildText(r store.RebuildReport) string {
	var rows [][]string
	for _, vm := range r.VMs {
		lost := strings.Trim(fmt.Sprint(vm.Lost), "[]")
		rows = append(rows, []string{vm.VM, fmt.Sprint(vm.Checkpoints), fmt.Sprint(vm.Head), lost})
	}
	var b strings.Builder
	if len(rows) > 0 {
		b.WriteString(table([]string{"VM", "\tCHECKPOINTS", "\tHEAD", "LOST"}, rows))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "✗ %s\n", oneLine(p))
	}
	fmt.Fprintf(&b, "%d VMs and %d bundles came back, from %d notes", len(r.VMs), len(r.Bundles), r.Notes)
	if len(r.Bundles) > 0 {
		fmt.Fprintf(&b, ": bundles %s", strings.Join(r.Bundles, ", "))
	}
	b.WriteString("\n")
	if r.Unnamed > 0 {
		fmt.Fprintf(&b, "%d snapshots in the packs have no name any more; the next flash gc --apply takes them\n", r.Unnamed)
	}
	if r.SetAside != "" {
		fmt.Fprintf(&b, "the old database is at %s\n", r.SetAside)
	}
	b.WriteString("the daemon doesn't collect by itself until you have looked: flash gc --background on\n")
	return b.String()
}
