package local_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const sabotageVariable = "FLASH_TEST_SABOTAGE"

// The crash tests must see a missing fsync: with one skipped in Sync, they are red.
func TestASkippedSyncTurnsTheCrashTestsRed(t *testing.T) {
	const name = "TestPowerCutAtAnyOperationLosesNothingSynced"
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-seed=1", "-seeds=1")
	cmd.Env = append(os.Environ(), sabotageVariable+"=skip-sync")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+name) || !strings.Contains(string(out), "was synced and is lost") {
		t.Errorf("%s doesn't see that Sync syncs nothing: %v: %.2000s", name, err, out)
	}
}
