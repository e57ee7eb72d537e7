package main

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"flash/vmm/guest"
)

// TestMeasureInAMachine says how quick and how quiet the agent is. It has no limits of its own: hosts differ.
func TestMeasureInAMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	m := bootVM(t, nil)
	memory := func() string { return m.sh(t, "grep RssAnon /proc/1/status") }
	before := memory()
	var times []time.Duration
	for range 60 {
		begin := time.Now()
		m.run(t, guest.ExecRequest{Argv: []string{"/bin/true"}}, "")
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	t.Logf("exec true: p50 %v, p90 %v", times[30], times[54])
	t.Logf("the agent's own memory before and after those 60: %q %q", before, memory())
	times = nil
	for range 100 {
		begin := time.Now()
		m.client.Thaw(t.Context())
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	t.Logf("round trip: p50 %v, p90 %v", times[50], times[90])

	const bytes = 32 << 20
	rate := func(what string, f func()) {
		begin := time.Now()
		f()
		t.Logf("%s: %.1f MB/s", what, bytes/1e6/time.Since(begin).Seconds())
	}
	rate("dd | cat > /dev/null inside", func() { m.sh(t, "dd if=/dev/zero bs=64k count=512 2>/dev/null | cat > /dev/null") })
	rate("guest to host", func() { m.sh2(t, "dd if=/dev/zero bs=64k count=512 2>/dev/null", nil) })
	rate("host to guest", func() { m.sh2(t, "cat > /dev/null", io.LimitReader(zeros{}, bytes)) })
	t.Log(m.sh(t, "cat /proc/1/status | grep -E 'Vm(HWM|RSS|Exe)|Rss|Threads'"))
	t.Logf("after the streams: %q", memory())

	// The agent's own switches while nobody asks anything of it; the command that counts is one exec.
	count := "for t in /proc/1/task/*/status; do grep ctxt_switches $t; done | awk '{n += $2} END {print n}'"
	out := m.sh(t, count+"; sleep 20; "+count)
	t.Logf("switches of the agent's threads before and after 20 idle seconds: %q", out)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// sh2 runs a script, throwing its output away.
func (p place) sh2(t *testing.T, script string, stdin io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := guest.ExecRequest{ID: newID(), Argv: []string{"sh", "-c", script}, Stdin: stdin != nil}
	if _, err := p.client.Exec(ctx, r, guest.Streams{Stdin: stdin}); err != nil {
		t.Fatal(err)
	}
}
