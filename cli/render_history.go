package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"flash/vmm/host"
)

const maxLabelWidth = 60

// historyTree draws a history: each checkpoint under its parent, a line of single children without indentation, so that
// only branches move to the right. The head is marked ●, pins with ⚑.
//
//	● is where the machine is
//	1        5m  12,345 KiB  sh build.sh
//	2        4m     120 KiB  sh run-tests.sh           exit 1
//	├─ 3     4m      96 KiB  rm -rf /work
//	└─ 4 ●   1m     101 KiB  before rewind to 2
func historyTree(cps []host.Checkpoint, now time.Time) string {
	if len(cps) == 0 {
		return "no checkpoints yet\n"
	}
	t := &tree{children: map[int][]host.Checkpoint{}, now: now}
	known := map[int]bool{}
	for _, cp := range cps {
		known[cp.Number] = true
	}
	var roots []host.Checkpoint
	for _, cp := range cps {
		// A parent that retention has removed leaves its children as roots.
		if cp.Parent == nil || !known[*cp.Parent] || *cp.Parent == cp.Number {
			roots = append(roots, cp)
		} else {
			t.children[*cp.Parent] = append(t.children[*cp.Parent], cp)
		}
	}
	for _, r := range roots {
		t.walk(r, "", "")
	}
	return t.String()
}

type tree struct {
	children map[int][]host.Checkpoint
	now      time.Time
	rows     [][4]string // name, age, bytes, rest
}

// walk adds cp, drawn after lead, and what descends from it after below. Single children follow in a loop: a history is
// thousands of checkpoints long, and rarely branches.
func (t *tree) walk(cp host.Checkpoint, lead, below string) {
	for {
		t.add(cp, lead)
		kids := t.children[cp.Number]
		if len(kids) == 0 {
			return
		}
		if len(kids) > 1 {
			for i, k := range kids {
				if i == len(kids)-1 {
					t.walk(k, below+"└─ ", below+"   ")
				} else {
					t.walk(k, below+"├─ ", below+"│  ")
				}
			}
			return
		}
		cp, lead = kids[0], below
	}
}

func (t *tree) add(cp host.Checkpoint, lead string) {
	name := lead + fmt.Sprint(cp.Number)
	if cp.Head {
		name += " ●"
	}
	if cp.Pinned {
		name += " ⚑"
	}
	label := printable(cp.Label, maxLabelWidth)
	if cp.From != nil && label == "" {
		label = fmt.Sprintf("fork of %s@%d", cp.From.VM, cp.From.Number)
	}
	if cp.ExitCode != nil {
		label += fmt.Sprintf("\texit %d", *cp.ExitCode)
	}
	t.rows = append(t.rows, [4]string{name, age(t.now, cp.Created), kib(cp.NewBytes), label})
}

func (t *tree) String() string {
	var width [4]int
	for _, r := range t.rows {
		for i, cell := range r {
			cell, _, _ = strings.Cut(cell, "\t")
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	pad := func(n int, s string) string { return strings.Repeat(" ", n-utf8.RuneCountInString(s)) }
	var b strings.Builder
	if slices.ContainsFunc(t.rows, func(r [4]string) bool { return strings.Contains(r[0], "●") }) {
		b.WriteString("● is where the machine is; checkpoint N is the state just before command N\n")
	}
	for _, r := range t.rows {
		label, exit, _ := strings.Cut(r[3], "\t")
		line := r[0] + pad(width[0], r[0]) + "  " + pad(width[1], r[1]) + r[1] + "  " + pad(width[2], r[2]) + r[2] + "  " +
			label + pad(width[3], label) + "  " + exit
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
