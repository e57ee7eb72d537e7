package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"flash/cli/httpapi"
	"flash/store"
	"flash/vmm"
	"flash/vmm/host"
)

// check is one thing doctor looked at.
type check struct {
	Name        string `json:"name"`
	Result      string `json:"result"`                // ok warning failed
	Found       string `json:"found"`                 // what was seen
	Consequence string `json:"consequence,omitempty"` // what it means, where it isn't ok
	Remedy      string `json:"remedy,omitempty"`
}

const (
	resultOK      = "ok"
	resultWarning = "warning" // flash works, slower or with less
	resultFailed  = "failed"  // flash doesn't work
)

func (a *app) doctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check what this host offers, and what follows from it",
		Long: `doctor checks this host: QEMU, acceleration, lazy memory, dirty tracking, disk space, the store and its budget, the daemon, leftovers. Each check
that isn't ok says its consequence and its remedy. It starts the daemon when none answers, for that is what it checks.

Exit codes: 0 ok, warnings included; 1 something keeps flash from working; 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			home, err := a.homeDir()
			if err != nil {
				return err
			}
			return a.showChecks(a.examine(cmd.Context(), home))
		}),
	}
	cmd.AddCommand(a.doctorRemoteCmd())
	return cmd
}

// showChecks tells what was found; the exit code says whether flash works.
func (a *app) showChecks(checks []check) error {
	if err := a.show(checks, func() string { return doctorText(checks) }); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Result == resultFailed {
			return exitStatus(1) // the checks have said it all
		}
	}
	return nil
}

func (a *app) examine(ctx context.Context, home string) []check {
	api, daemon := a.checkDaemon(ctx, home)
	checks := []check{checkQEMU(ctx), daemon}
	if api != nil {
		info, err := api.Info(ctx)
		checks = append(checks, engineChecks(info, err)...)
		if err == nil {
			checks = append(checks, checkBudget(info.Usage))
		}
		vms, err := api.List(ctx)
		checks = append(checks, vmCheck(vms, err))
		if err == nil {
			checks = append(checks, checkLeftovers(home, info.PID, vms))
		}
	}
	return append(checks, checkSpace(home), checkSharedMemory())
}

func (a *app) checkDaemon(ctx context.Context, home string) (host.API, check) {
	api, err := a.connect(ctx)
	if err != nil {
		return nil, failed("daemon", err, "no VM can be run or reached")
	}
	return api, check{Name: "daemon", Result: resultOK, Found: "answers at " + socketPath(home)}
}

// failed makes the check that tells an error.
func failed(name string, err error, consequence string) check {
	e := httpapi.ErrorOf(err)
	return check{name, resultFailed, e.Message, consequence, e.Remedy}
}

// engineChecks tells what the engine's own probe found: it has tried, where looking at files would only guess.
func engineChecks(info host.Info, err error) []check {
	if err != nil {
		return []check{failed("engine", err, "no VM can be run")}
	}
	caps := info.Capabilities
	why := func(names ...string) string {
		for _, n := range names {
			if r := caps.Reasons[n]; r != "" {
				return ": " + r
			}
		}
		return ""
	}
	engine := check{Name: "engine", Result: resultOK, Found: fmt.Sprintf("%s %s, %s, CPU %s", caps.Facts.Engine, caps.Facts.Version, caps.Facts.MachineType, caps.Facts.CPU)}
	accel := check{Name: "acceleration", Result: resultOK, Found: caps.Facts.Accel}
	if caps.Facts.Accel != "kvm" && caps.Facts.Accel != "hvf" {
		accel = check{"acceleration", resultWarning, caps.Facts.Accel + why("kvm", "accel", "hvf"),
			"guests are emulated: commands run about ten times slower; checkpoints and rewinds cost the same",
			"use a host whose CPUs offer virtualisation and whose /dev/kvm may be opened"}
	}
	lazy := check{Name: "lazy memory (userfaultfd)", Result: resultOK, Found: "pages come in when they are touched"}
	if !caps.LazyPager {
		lazy = check{"lazy memory (userfaultfd)", resultWarning, "not there" + why("lazy memory", "lazy"),
			"rewind, fork and resume first read the whole memory", "Linux 5.7 or newer, and root, or sysctl vm.unprivileged_userfaultfd=1"}
	}
	tracker := check{Name: "dirty tracking (PAGEMAP_SCAN)", Result: resultOK, Found: caps.Tracker}
	if caps.Tracker != "pagemap-scan" {
		consequence := "checkpoints compare all memory: each takes as long as the VM is large"
		if caps.Tracker == "soft-dirty" {
			consequence = "checkpoints walk all page tables: some milliseconds for each GiB"
		}
		tracker = check{"dirty tracking (PAGEMAP_SCAN)", resultWarning, caps.Tracker + why("pagemap-scan"), consequence, "Linux 6.7 or newer, and root"}
	}
	shared := check{Name: "shared fork memory", Result: resultOK, Found: "forks of a checkpoint share its pages"}
	if !caps.Shared {
		shared = check{"shared fork memory", resultWarning, "not there" + why("shared memory", "shared"), "each fork needs memory of its own for every page it touches", "what lazy memory needs"}
	}
	user := check{Name: "machines' user", Result: resultOK, Found: "the daemon's, which isn't root"}
	switch {
	case caps.OwnUser:
		user.Found = "each QEMU has one of its own, without privilege"
	case caps.Reasons["own user"] != "":
		user = check{"machines' user", resultWarning, "the daemon's, root" + why("own user"),
			"a guest that broke out of its QEMU would be root here", "Linux 6.1 or newer, which has /dev/userfaultfd, a /dev/kvm that its group may open, and a QEMU that others may run"}
	}
	return []check{engine, accel, lazy, tracker, shared, user, limitsCheck(caps)}
}

// limitsCheck tells what of each QEMU is bounded.
func limitsCheck(caps vmm.Capabilities) check {
	const name = "limits (cgroup v2)"
	var missing []string
	for _, one := range []string{"limits", "memory limit", "pids limit", "cpu limit"} {
		if why := caps.Reasons[one]; why != "" {
			missing = append(missing, why)
		}
	}
	found := "none"
	if len(caps.Limits) > 0 {
		found = "of each QEMU: " + strings.Join(caps.Limits, ", ")
	}
	if len(missing) > 0 || len(caps.Limits) == 0 {
		if len(missing) == 0 {
			missing = []string{"only root can set them"}
		}
		return check{name, resultWarning, found + ": " + strings.Join(missing, "; "), "a guest that broke out of its QEMU could take more of this host than its VM was to have",
			"run as root, with cgroup v2 at /sys/fs/cgroup (systemd.unified_cgroup_hierarchy=1) and its controllers memory, pids and cpu"}
	}
	return check{Name: name, Result: resultOK, Found: found}
}

// checkBudget tells how much of its budget the store uses.
func checkBudget(u store.Usage) check {
	const name, remedy = "store", "flash gc --apply frees what nothing reaches; flash gc --budget raises the budget"
	switch {
	case u.Budget == 0:
		return check{Name: name, Result: resultOK, Found: fmt.Sprintf("%s of packs, bounded by the disk alone", kib(u.PackBytes))}
	case u.PackBytes >= u.Limit:
		return check{name, resultFailed, usageText(u), "no checkpoint, fork or bundle is made; VMs run on", remedy}
	case u.Pressing():
		return check{name, resultWarning, usageText(u), "soon no checkpoint will be made", remedy}
	}
	return check{Name: name, Result: resultOK, Found: usageText(u)}
}

func vmCheck(vms []host.VM, err error) check {
	if err != nil {
		return failed("VMs", err, "the VMs can't be told")
	}
	var crashed []string
	for _, vm := range vms {
		if vm.State == "crashed" {
			crashed = append(crashed, vm.ID)
		}
	}
	if len(crashed) > 0 {
		return check{"VMs", resultWarning, "crashed: " + strings.Join(crashed, " "), "they don't answer; their checkpoints are safe", "flash resume " + strings.Join(crashed, " ")}
	}
	return check{Name: "VMs", Result: resultOK, Found: fmt.Sprintf("%d, none crashed", len(vms))}
}

func doctorText(checks []check) string {
	marks := map[string]string{resultOK: "✓", resultWarning: "!", resultFailed: "✗"}
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%s %s: %s\n", marks[c.Result], c.Name, oneLine(c.Found))
		if c.Consequence != "" {
			fmt.Fprintf(&b, "    → %s\n", c.Consequence)
		}
		if c.Remedy != "" {
			fmt.Fprintf(&b, "    hint: %s\n", oneLine(c.Remedy))
		}
	}
	return b.String()
}
