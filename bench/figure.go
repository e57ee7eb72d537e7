package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is one measured quantity over several runs.
type Figure struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Runs     int      `json:"runs"`
	Median   float64  `json:"median"`
	P99      float64  `json:"p99"`
	Goal     string   `json:"goal,omitempty"`
	Baseline *float64 `json:"baseline,omitempty"` // plain QEMU's median, same unit
	Note     string   `json:"note,omitempty"`
}

// figure sums up samples. P99 of fewer than 100 samples is the largest.
func figure(name, unit, goal string, samples []float64) Figure {
	f := Figure{Name: name, Unit: unit, Goal: goal, Runs: len(samples)}
	if len(samples) == 0 {
		f.Median, f.P99 = math.NaN(), math.NaN()
		return f
	}
	sorted := slices.Sorted(slices.Values(samples))
	f.Median = sorted[len(sorted)/2]
	f.P99 = sorted[min(len(sorted)-1, int(math.Ceil(0.99*float64(len(sorted))))-1)]
	return f
}

// Report is what one run of flash bench measured.
type Report struct {
	Machine map[string]string `json:"machine"`
	Figures []Figure          `json:"figures"`
}

// Print writes the report as a table for people.
func (r Report) Print(w io.Writer) error {
	var facts []string
	for k, v := range r.Machine {
		facts = append(facts, k+": "+v)
	}
	slices.Sort(facts)
	fmt.Fprintln(w, strings.Join(facts, " · "))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tmedian\tp99\tunit\truns\tgoal\tplain QEMU\t")
	for _, f := range r.Figures {
		base := ""
		if f.Baseline != nil {
			base = fmt.Sprintf("%.4g (%.1f×)", *f.Baseline, *f.Baseline/f.Median)
		}
		fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%s\t%d\t%s\t%s\t\n", f.Name, f.Median, f.P99, f.Unit, f.Runs, f.Goal, base)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.Figures {
		if f.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", f.Name, f.Note)
		}
	}
	return nil
}
