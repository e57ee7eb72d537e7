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
	since time.Time // the step on the line began
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
	if p.Step != b.shown {
		b.since = now
	}
	if p.Step != b.shown && b.shown != "" {
		fmt.Fprint(b.w, "\n")
	} else if now.Sub(b.drawn) < redrawInterval && p.Done != p.Total {
		return
	}
	b.shown, b.drawn = p.Step, now
	fmt.Fprintf(b.w, "\r\x1b[K%s%s", progressText(p), paceText(p, now.Sub(b.since)))
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

// paceText is how fast bytes move and how long the rest takes at that pace; "" while that would be a guess.
func paceText(p host.Progress, took time.Duration) string {
	if p.Unit != "bytes" || took < time.Second || p.Done <= 0 {
		return ""
	}
	perSecond := float64(p.Done) / took.Seconds()
	text := fmt.Sprintf(", %s/s", kib(int64(perSecond)))
	if left := p.Total - p.Done; left > 0 {
		text += fmt.Sprintf(", %s left", time.Duration(float64(left)/perSecond*float64(time.Second)).Round(time.Second))
	}
	return text
}
