package cli

import (
	"testing"
	"time"

	"flash/vmm/host"
)

func TestProgressTellsPaceAndRest(t *testing.T) {
	for _, c := range []struct {
		p    host.Progress
		took time.Duration
		want string
	}{
		{host.Progress{Done: 64 << 20, Total: 192 << 20, Unit: "bytes"}, 2 * time.Second, ", 32,768 KiB/s, 4s left"},
		{host.Progress{Done: 64 << 20, Total: 64 << 20, Unit: "bytes"}, 2 * time.Second, ", 32,768 KiB/s"},
		{host.Progress{Done: 64 << 20, Unit: "bytes"}, 2 * time.Second, ", 32,768 KiB/s"},
		{host.Progress{Done: 1 << 20, Total: 9 << 20, Unit: "bytes"}, time.Second / 2, ""}, // it has only begun
		{host.Progress{Done: 3, Total: 9, Unit: "packages"}, time.Minute, ""},
	} {
		if got := paceText(c.p, c.took); got != c.want {
			t.Errorf("%+v after %s: %q, want %q", c.p, c.took, got, c.want)
		}
	}
}
