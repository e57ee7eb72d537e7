package uffd

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"flash/memtrack"
)

const sabotageVariable = "FLASH_TEST_SABOTAGE"

// unfetched takes every absent page for zeros, whether a fault, a prefetch or a checkpoint wants it.
type unfetched struct{ memtrack.Source }

func (unfetched) ReadSlot(_ context.Context, _ uint64, dst []byte) error { clear(dst); return nil }
func (unfetched) IsZero(context.Context, uint64) (bool, error)           { return true, nil }
func (unfetched) ReadSlots(_ context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, slot := range slots {
		if err := each(slot, nil); err != nil {
			return err
		}
	}
	return nil
}

// The tests that guard against zeros must see them: with absent pages filled with zeros instead of the snapshot's bytes,
// each of these is red.
func TestZeroFilledPagesTurnTheTestsRed(t *testing.T) {
	need(t, true)
	for name, says := range map[string]string{
		"TestAbsentPagesAreNeverZero":                        "read as",
		"TestMachinesOfOneBaseSharePagesButNotWrites":        "isn't the snapshot's",
		"TestPrefetchedPagesMakeNoFaultsAndAreNotChanged":    "isn't the snapshot's",
		"TestCheckpointRightAfterLazyRestoreIsEmptyAndExact": "isn't the snapshot's",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$")
		cmd.Env = append(os.Environ(), sabotageVariable+"=zero-fill")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--- FAIL: "+name) || !strings.Contains(string(out), says) {
			t.Errorf("%s doesn't see zeros: %v: %s", name, err, out)
		}
	}
}
