package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"flash/vmm/host"
)

const (
	barCells       = 24
	redrawInterval = 100 * time.Millisecond
)

// progressBar is one line on a terminal, drawn anew; elsewhere it is silent.
type progressBar struct {
	w     io.Writer // nil: silent
	shown string    // the step on the line
	drawn time.Time
	begun time.Time
}

func (a *app) progressBar() *progressBar {
	b := &progressBar{begun: time.Now()}
	if isTerminal(a.stderr) && !a.json {
		b.w = a.stderr
	}
	return b
}

// step shows how far the work is. Preconditions: called by one goroutine at a time.
func (b *progressBar) step(p host.Progress) {
	if b.w == nil {
		return
	}
	now := time.Now()
	if p.Step != b.shown && b.shown != "" {
		fmt.Fprint(b.w, "\n")
	} else if now.Sub(b.drawn) < redrawInterval && p.Done != p.Total {
		return
	}
	b.shown, b.drawn = p.Step, now
	fmt.Fprintf(b.w, "\r\x1b[K%s", progressText(p))
}

// done ends the line.
func (b *progressBar) done() {
	if b.w != nil && b.shown != "" {
		fmt.Fprintf(b.w, "\ndone after %s\n", time.Since(b.begun).Round(100*time.Millisecond))
	}
}

func progressText(p host.Progress) string {
	amount := func(n int64) string {
		if p.Unit == "bytes" {
			return kib(n)
		}
		return strings.TrimSpace(fmt.Sprintf("%d %s", n, p.Unit))
	}
	if p.Total <= 0 {
		return fmt.Sprintf("%s  %s", printable(p.Step, maxLabelWidth), amount(p.Done))
	}
	full := int(min(p.Done, p.Total) * barCells / p.Total)
	return fmt.Sprintf("%s  [%s%s] %s of %s", printable(p.Step, maxLabelWidth),
		strings.Repeat("█", full), strings.Repeat("░", barCells-full), amount(p.Done), amount(p.Total))
}
