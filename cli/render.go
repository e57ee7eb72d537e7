package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// show prints v as JSON with --json, else what human gives.
func (a *app) show(v any, human func() string) error {
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprint(a.stdout, human())
	return err
}

// printJSON prints v on stdout, indented, an empty list as [].
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // labels hold shell commands; && should read as &&
	return e.Encode(v)
}

// list makes no elements an empty list.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// say prints one line for a human on stderr, beside the output.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, format+"\n", args...)
}

// table aligns cells by the width of what is seen; the last column isn't padded. Numbers are marked by a leading tab
// in their heading and put to the right.
func table(heads []string, rows [][]string) string {
	width := make([]int, len(heads))
	right := make([]bool, len(heads))
	plain := make([]string, len(heads))
	for i, h := range heads {
		plain[i], right[i] = strings.TrimPrefix(h, "\t"), strings.HasPrefix(h, "\t")
	}
	all := append([][]string{plain}, rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// kib is a size the way histories show it.
func kib(n int64) string {
	switch {
	case n == 0:
		return "0"
	case n < 1024:
		return fmt.Sprintf("%.1f KiB", float64(n)/1024)
	}
	k := fmt.Sprint((n + 512) / 1024)
	for i := len(k) - 3; i > 0; i -= 3 {
		k = k[:i] + "," + k[i:]
	}
	return k + " KiB"
}

// age is how long ago something was, in one unit.
func age(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero():
		return "-"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// printable makes a label fit a line: control characters, which a guest's command may hold, don't reach the terminal.
func printable(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if width > 0 && utf8.RuneCountInString(s) > width {
		s = string([]rune(s)[:width-1]) + "…"
	}
	return s
}
