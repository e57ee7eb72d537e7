package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"flash/bench"
)

// Less than a minute of what flash bench soak does for as long as one likes; a failure names its seed.
func TestRealGuestsSurviveASoak(t *testing.T) {
	flash := needGuests(t)
	base, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	if err := keepPackages(base); err != nil {
		t.Fatal(err)
	}
	const limit = 8 * time.Minute // emulated, in a crowd
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(flash.root, "bin", "flash"), "bench", "soak", "--for", "45s", "--vms", "3", "--json")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "FLASH_HOME="+base), &out, &errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes what it has made
	cmd.WaitDelay = 30 * time.Second
	ended := cmd.Run()
	if errOut.Len() > 0 {
		t.Errorf("in a pipe it isn't silent: %s", errOut.String())
	}
	var r bench.SoakReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Seed == 0 {
		t.Fatalf("%v: %v in %s", ended, err, out.String())
	}
	if ended != nil || !r.Clean() {
		t.Errorf("%v: seed %d\n%q\n%q", ended, r.Seed, r.Failures, r.Leaks)
	}
	if r.Looks == 0 || r.Operations["kill of daemon and machines"] == 0 || len(r.Before) == 0 || len(r.After) != len(r.Before) {
		t.Errorf("it has hardly looked: %+v", r)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 1 {
		t.Errorf("it leaves behind: %v %v", left, err)
	}
	t.Logf("seed %d: %d comparisons; done %v, cut short %v", r.Seed, r.Looks, r.Operations, r.Cut)
}
