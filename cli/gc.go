package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flash/store"
	"flash/vmm/host"
)

func (a *app) gcCmd() *cobra.Command {
	var r host.GCRequest
	var keep store.Retention
	var older, size, background, budget, remote string
	cmd := &cobra.Command{
		Use:   "gc [VM…]",
		Short: "thin histories and free what nothing reaches",
		Long: `gc says what it would free, and with --apply frees it, beside running machines. Without rules nothing is taken out of a
history: only what removed VMs, bundles and checkpoints left is freed.

Rules: a checkpoint stays if any --keep-… wants it; of the others those older than --older-than go. At last, while what is
left of a VM's history has added more than --max-bytes, its oldest goes. The head, pins and fork points of VMs that exist
never go. Children of a removed checkpoint hang on its nearest ancestor that is left.

--remote NAME frees what no history in that remote reaches: packs are condemned first, and removed by a later run when the
grace is over and nobody has needed them since.

--save keeps the rules for the VMs named, or for all others; the daemon then thins by them in the background. --save
without rules takes them away. --background off keeps the daemon from collecting by itself.

--budget bounds the packs, from then on. An eighth of it (at most 1 GiB) is a reserve: checkpoints, forks and bundles are
refused (store_full) before it is touched, a VM that is stopped or rewound may still save its present in it. VMs run on,
nothing is lost, and the daemon collects by itself when little room is left. A collection can always be run.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash gc --keep-last 50 --keep-hourly 24 --keep-daily 14            what would go\n" +
			"  flash gc --keep-last 50 --keep-hourly 24 --keep-daily 14 --save --apply\n" +
			"  flash gc --older-than 30d agent-1 --apply",
		ValidArgsFunction: a.completeVMs,
	}
	f := cmd.Flags()
	f.BoolVar(&r.Apply, "apply", false, "do it; without, only say what would be freed")
	f.IntVar(&keep.KeepLast, "keep-last", 0, "keep the newest N")
	f.IntVar(&keep.KeepHourly, "keep-hourly", 0, "keep the newest of each of the last N hours that have one")
	f.IntVar(&keep.KeepDaily, "keep-daily", 0, "keep the newest of each of the last N days that have one")
	f.StringVar(&older, "older-than", "", "let go only what is older, as in 90m, 12h, 30d")
	f.StringVar(&size, "max-bytes", "", "at most this much added by one VM's history, as in 500M, 20G")
	f.BoolVar(&r.Save, "save", false, "keep the rules, for the VMs named or for all others")
	f.StringVar(&background, "background", "", "on or off: whether the daemon collects by itself")
	f.StringVar(&budget, "budget", "", "how large the packs may grow, as in 40G, or none")
	f.IntVar(&r.EveryMinutes, "every", 0, "minutes between the daemon's own collections, at least")
	f.StringVar(&remote, "remote", "", "collect in that remote instead")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if remote != "" {
			if len(args) > 0 || r.Save || !keep.IsZero() || older != "" || size != "" || background != "" {
				return usageError{fmt.Errorf("--remote goes with --apply only: rules thin the histories of this host")}
			}
			return a.gcRemote(cmd, remote, r.Apply)
		}
		var err error
		if keep.OlderThanSeconds, err = parseAge(older); err != nil {
			return usageError{fmt.Errorf("--older-than: %w", err)}
		}
		if keep.MaxBytes, err = parseSize(size); err != nil {
			return usageError{fmt.Errorf("--max-bytes: %w", err)}
		}
		if keep.Check() != nil || r.EveryMinutes < 0 {
			return usageError{fmt.Errorf("no rule may be negative")}
		}
		if r.BudgetBytes, err = parseBudget(budget); err != nil {
			return usageError{fmt.Errorf("--budget: %w", err)}
		}
		switch background {
		case "":
		case "on", "off":
			on := background == "on"
			r.Background = &on
		default:
			return usageError{fmt.Errorf("--background takes on or off, not %q", background)}
		}
		if !keep.IsZero() {
			r.Retention = &keep
		}
		r.VMs = args
		return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
			report, err := api.GC(ctx, r)
			if err != nil {
				return err
			}
			return a.show(report, func() string { return gcText(report, time.Now()) })
		})(cmd, args)
	}
	return cmd
}

// parseAge reads 90m, 12h, 30d, 2w; "" is 0.
func parseAge(text string) (seconds int64, err error) {
	if text == "" {
		return 0, nil
	}
	for suffix, unit := range map[string]int64{"d": 24 * 3600, "w": 7 * 24 * 3600} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			days, err := strconv.ParseInt(n, 10, 32)
			if err != nil || days < 0 {
				return 0, fmt.Errorf("%q is no age, as in 90m, 12h, 30d, 2w", text)
			}
			return days * unit, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, fmt.Errorf("%q is no age of a second or more, as in 90m, 12h, 30d, 2w", text)
	}
	return int64(d / time.Second), nil
}

// parseSize reads 500M, 20G, 1T, or bytes; "" is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "IB"), "B"), int64(1)
	for i, suffix := range []string{"K", "M", "G", "T"} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is no size, as in 500M, 20G", text)
	}
	return n * unit, nil
}

// parseBudget reads a size of the store's packs, or none; nil: it wasn't given.
func parseBudget(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	if text == "none" {
		return new(int64), nil
	}
	bytes, err := parseSize(text)
	if err == nil && bytes < store.MinBudgetBytes {
		err = fmt.Errorf("%q is less than the %d MiB a store needs", text, store.MinBudgetBytes>>20)
	}
	return &bytes, err
}

// usageText says how much of its budget a store uses; "" where none was set.
func usageText(u store.Usage) string {
	if u.Budget == 0 {
		return ""
	}
	return fmt.Sprintf("the packs have %s of %s; above %s no checkpoint begins", kib(u.PackBytes), kib(u.Budget), kib(u.Limit))
}

func gcText(r host.GCReport, now time.Time) string {
	var b strings.Builder
	does, frees := "would go", "would be freed"
	if r.Applied {
		does, frees = "are gone", "are freed"
	}
	if len(r.Removed) > 0 {
		var rows [][]string
		for _, c := range r.Removed {
			rows = append(rows, []string{c.VM, fmt.Sprint(c.Number), age(now, c.Created), kib(c.NewBytes), printable(c.Label, maxLabelWidth)})
		}
		fmt.Fprintf(&b, "%d checkpoints %s:\n%s\n", len(r.Removed), does, table([]string{"VM", "\tN", "\tAGE", "\tADDED", "LABEL"}, rows))
	}
	s := r.Sweep
	b.WriteString(table([]string{"", "\tCHUNKS", "\tBYTES"}, [][]string{
		{"alive", fmt.Sprint(s.LiveChunks), kib(s.LiveBytes)},
		{"dead", fmt.Sprint(s.DeadChunks), kib(s.DeadBytes)},
	}))
	fmt.Fprintf(&b, "%d snapshots in %d packs; %s %s\n", r.Snapshots, s.Packs, kib(max(0, r.Freed)), frees)
	if s.Postponed > 0 {
		fmt.Fprintf(&b, "%d packs wait for the next time\n", s.Postponed)
	}
	if s.DamagedPacks > 0 {
		fmt.Fprintf(&b, "%d packs are damaged and stay; flash check says more\n", s.DamagedPacks)
	}
	for _, vm := range slices.Sorted(maps.Keys(r.Rules)) {
		who := vm
		if vm == "" {
			who = "all others"
		}
		fmt.Fprintf(&b, "rules of %s: %s\n", who, rulesText(r.Rules[vm]))
	}
	if text := usageText(r.Usage); text != "" {
		b.WriteString(text + "\n")
	}
	if r.Settings.GCOff {
		b.WriteString("the daemon doesn't collect by itself; --background on lets it\n")
	}
	if !r.Applied && (len(r.Removed) > 0 || r.Freed > 0) {
		b.WriteString("nothing was changed; --apply does it\n")
	}
	return b.String()
}

func rulesText(r store.Retention) string {
	var parts []string
	add := func(n int64, format string, v any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add(int64(r.KeepLast), "keep the last %d", r.KeepLast)
	add(int64(r.KeepHourly), "%d hourly", r.KeepHourly)
	add(int64(r.KeepDaily), "%d daily", r.KeepDaily)
	add(r.OlderThanSeconds, "let go what is older than %s", time.Duration(r.OlderThanSeconds)*time.Second)
	add(r.MaxBytes, "at most %s", kib(r.MaxBytes))
	return strings.Join(parts, ", ")
}
