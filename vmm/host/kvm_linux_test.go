package host

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The main story on KVM, with the tracker of this kernel: `make test-kvm` runs it where both are others than usual.
func TestKVMStoryOfRunExecCheckpointRewind(t *testing.T) {
	required := strings.Contains(os.Getenv("FLASH_REQUIRE"), "kvm")
	if _, err := os.Stat("/dev/kvm"); err != nil && !required {
		t.Skip(err)
	}
	h := needGuests(t)
	info, err := h.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if caps := info.Capabilities; caps.Facts.Accel != "kvm" {
		if required {
			t.Fatalf("KVM is required: %s", caps.Reasons["kvm"])
		}
		t.Skip(caps.Reasons["kvm"])
	}
	began := time.Now()
	lap := func(what string) {
		t.Logf("%s after %v", what, time.Since(began).Round(time.Millisecond))
	}
	v := runVM(t, h, "story", 256)
	lap("answered")
	v.sh("echo precious > /root/file; sync")
	v.sh(startCounter)
	counted := v.count()
	c := v.checkpoint()
	lap("checkpointed")
	v.sh("rm /root/file; kill $(cat /run/count/pid); sync")
	v.rewind(c.Number)
	lap("rewound")
	if got := v.sh("cat /root/file"); got != "precious" {
		t.Errorf("the file holds %q", got)
	}
	if again := v.count(); again < counted {
		t.Errorf("the counter was %d before the checkpoint and is %d", counted, again)
	}
	v.sh("kill -0 $(cat /run/count/pid)")
	if seconds, err := strconv.ParseInt(v.sh("date +%s"), 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		t.Errorf("the guest's clock says %d, %v", seconds, err)
	}
	second := v.checkpoint()
	if second.Number <= c.Number {
		t.Errorf("checkpoint %d after %d", second.Number, c.Number)
	}
	lap("checkpointed again")
}
