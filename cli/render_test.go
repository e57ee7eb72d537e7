package cli

import (
	"strings"
	"testing"
	"time"

	"flash/store"
	"flash/vmm/host"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func entry(n, parent int, label string, more ...func(*host.Checkpoint)) host.Checkpoint {
	cp := host.Checkpoint{Number: n, Label: label, Created: now.Add(-time.Duration(100-n) * time.Minute), NewBytes: int64(n) * 100_000}
	if parent >= 0 {
		cp.Parent = &parent
	}
	for _, m := range more {
		m(&cp)
	}
	return cp
}

func exited(code int) func(*host.Checkpoint) {
	return func(cp *host.Checkpoint) { cp.ExitCode = &code }
}
func head(cp *host.Checkpoint)   { cp.Head = true }
func pinned(cp *host.Checkpoint) { cp.Pinned = true }

func TestHistoryIsDrawnAsATree(t *testing.T) {
	got := historyTree([]host.Checkpoint{
		entry(0, -1, "", func(cp *host.Checkpoint) { cp.From = &store.ForkPoint{VM: "agent-1", Number: 3} }),
		entry(1, 0, "sh build.sh", exited(0)),
		entry(2, 1, "sh run-tests.sh", exited(1), pinned),
		entry(3, 2, "rm -rf /work", exited(0)),
		entry(4, 3, "before rewind to 2"),
		entry(5, 2, "a\x1b[31m\nb", exited(0)),
		entry(6, 5, "one way", exited(0)),
		entry(7, 5, strings.Repeat("long ", 20), head),
		entry(9, 8, "its parent is gone"),
	}, now)
	want := `● is where the machine is; checkpoint N is the state just before command N
0          1h        0  fork of agent-1@3
1          1h   98 KiB  sh build.sh                                                   exit 0
2 ⚑        1h  195 KiB  sh run-tests.sh                                               exit 1
├─ 3       1h  293 KiB  rm -rf /work                                                  exit 0
│  4       1h  391 KiB  before rewind to 2
└─ 5       1h  488 KiB  a [31m b                                                      exit 0
   ├─ 6    1h  586 KiB  one way                                                       exit 0
   └─ 7 ●  1h  684 KiB  long long long long long long long long long long long long…
9          1h  879 KiB  its parent is gone
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestVeryLongHistoryIsDrawn(t *testing.T) {
	cps := make([]host.Checkpoint, 100_000)
	for i := range cps {
		cps[i] = entry(i+1, i, "x")
	}
	if lines := strings.Count(historyTree(cps, now), "\n"); lines != len(cps) {
		t.Errorf("%d lines", lines)
	}
}

func TestSizesAndAgesAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 100: "0.1 KiB", 1024: "1 KiB", 1 << 20: "1,024 KiB", 5 << 30: "5,242,880 KiB"} {
		if got := kib(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "now", 5 * time.Second: "5s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 72 * time.Hour: "3d"} {
		if got := age(now, now.Add(-d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestGuestsTextCanNotDriveTheTerminal(t *testing.T) {
	for in, want := range map[string]string{"a\x1b[2Jb": "a [2Jb", "a\u009b31mb": "a 31mb", "a\r\n\tb": "a b", "grün ✓": "grün ✓", "a\x00b\xffc": "a b c"} {
		if got := printable(in, 0); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestProgressSaysHowFarItIs(t *testing.T) {
	if got := progressText(host.Progress{Step: "store", Done: 1 << 20, Total: 2 << 20, Unit: "bytes"}); got != "store  [████████████░░░░░░░░░░░░] 1,024 KiB of 2,048 KiB" {
		t.Error(got)
	}
	if got := progressText(host.Progress{Step: "files", Done: 7, Unit: "files"}); got != "files  7 files" {
		t.Error(got)
	}
}
