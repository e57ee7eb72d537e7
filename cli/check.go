package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"flash/store"
	"flash/vmm/host"
)

// Exit codes of check, beyond those of every command.
const (
	exitHarmless = 3
	exitDamage   = 4
)

func (a *app) checkCmd() *cobra.Command {
	var read string
	var repair, heal bool
	cmd := &cobra.Command{
		Use:   "check [REMOTE]",
		Short: "look for damage in the store, and name the checkpoints it touches",
		Long: `check reads the structure of every checkpoint and bundle, the histories and the ledgers, and then the share of the packs'
bytes that --read names, chosen at random. Each finding has its evidence and the checkpoints it touches.

--repair reads all, makes the index again and replaces each damaged pack by a copy of what is good in it. Nothing is mended
in place: the damaged file stays among the packs as ….quarantine. What has no good copy is lost; its checkpoints are named.

With a remote's name it checks what is there: that every history's checkpoints are whole, and the share of the packs. --heal
puts damaged packs there right from good ones here, and damaged ones here from there, before it checks.

Exit codes: 0 all is well, 1 it couldn't be checked, or there was nothing to check, 2 wrong usage, 3 damage that touches
no checkpoint and no bundle, 4 damage that does.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeRemotes,
	}
	cmd.Flags().BoolVar(&heal, "heal", false, "with a remote: exchange damaged packs for the other side's good ones")
	cmd.Flags().StringVar(&read, "read", "5%", "how much of the packs is read: a share as in 5%, all, or none")
	cmd.Flags().BoolVar(&repair, "repair", false, "replace damaged packs by copies of what is good in them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		share, err := parseShare(read)
		if err != nil {
			return usageError{fmt.Errorf("--read: %w", err)}
		}
		if len(args) == 1 {
			if repair {
				return usageError{errors.New("--repair is for this host's own store; --heal is for a remote")}
			}
			return a.checkRemote(cmd, host.RemoteCheckRequest{Remote: args[0], Read: share, Heal: heal})
		}
		if heal {
			return usageError{errors.New("--heal needs a remote's name")}
		}
		return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
			report, err := api.Check(ctx, host.CheckRequest{Read: share, Repair: repair})
			if err != nil {
				return err
			}
			if err := a.show(report, func() string { return checkText(report) }); err != nil {
				return err
			}
			return worst(report.Worst)
		})(cmd, args)
	}
	return cmd
}

// worst is the exit code of a check.
func worst(severity string) error {
	switch severity {
	case "":
		return nil
	case store.Harmless:
		return exitStatus(exitHarmless)
	}
	return exitStatus(exitDamage)
}

func (a *app) checkRemote(cmd *cobra.Command, r host.RemoteCheckRequest) error {
	return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
		bar := a.progressBar()
		report, err := api.CheckRemote(ctx, r, bar.step)
		bar.done()
		if err != nil {
			return err
		}
		if err := a.show(report, func() string { return remoteCheckText(report) }); err != nil {
			return err
		}
		return worst(report.Worst)
	})(cmd, nil)
}

func remoteCheckText(r host.RemoteCheckReport) string {
	var b strings.Builder
	writeFindings(&b, r.Findings)
	if h := r.Healed; h != nil {
		fmt.Fprintf(&b, "healed: %d records brought or sent, of %d packs; %d have no good copy on either side\n", h.Salvaged, h.Packs, h.LostRecords)
	}
	fmt.Fprintf(&b, "checked %d histories, %d packs, %d nodes, %d chunks; read %d packs, %s\n", r.Refs, r.Packs, r.Nodes, r.Chunks, r.Read.Packs, kib(r.Read.Bytes))
	if r.Worst == "" {
		b.WriteString("all is well\n")
	} else {
		b.WriteString("--heal exchanges damaged packs for good ones\n")
	}
	return b.String()
}

// parseShare reads 5%, all, none.
func parseShare(text string) (float64, error) {
	switch text {
	case "all":
		return 1, nil
	case "none":
		return 0, nil
	}
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) {
		return 0, fmt.Errorf("%q is no share, as in 5%%, all, none", text)
	}
	return percent / 100, nil
}

// maxNamedTouches bounds a line; --json has them all.
const maxNamedTouches = 8

func checkText(r store.CheckReport) string {
	var b strings.Builder
	writeFindings(&b, r.Findings)
	if r.Repair != nil {
		fmt.Fprintf(&b, "repaired: %d of %d packs replaced, %d records saved, %d lost\n", len(r.Repair.Quarantined), r.Repair.Packs, r.Repair.Salvaged, r.Repair.LostRecords)
		for _, name := range r.Repair.Quarantined {
			fmt.Fprintf(&b, "    set aside: packs/%s\n", name)
		}
	}
	fmt.Fprintf(&b, "checked %d snapshots, %d nodes, %d chunks, %d records of histories and ledgers; read %d packs, %s\n",
		r.Snapshots, r.Nodes, r.Chunks, r.Records, r.Read.Packs, kib(r.Read.Bytes))
	switch r.Worst {
	case "":
		b.WriteString("all is well\n")
	case store.Harmless:
		b.WriteString("nothing that has a name is damaged; flash check --repair puts the packs right\n")
	default:
		b.WriteString("damaged checkpoints are refused or stop where the damage is; flash check --repair saves what is good\n")
	}
	return b.String()
}

// writeFindings tells each finding with what it touches.
func writeFindings(b *strings.Builder, findings []store.Finding) {
	for _, f := range findings {
		mark := "!"
		if f.Severity == store.Damage {
			mark = "✗"
		}
		fmt.Fprintf(b, "%s %s", mark, f.Kind)
		if !f.Hash.IsZero() {
			fmt.Fprintf(b, " %s", f.Hash)
		}
		if f.Pack != "" {
			fmt.Fprintf(b, " in pack %s at offset %d", f.Pack, f.Offset)
		}
		fmt.Fprintf(b, ": %s\n", oneLine(f.Reason))
		if len(f.Touches) == 0 {
			b.WriteString("    → touches no checkpoint\n")
			continue
		}
		var names []string
		for _, n := range f.Touches[:min(len(f.Touches), maxNamedTouches)] {
			names = append(names, n.String())
		}
		if more := len(f.Touches) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(b, "    → touches %s\n", strings.Join(names, ", "))
	}
}
