package qemu

import (
	"errors"
	"strings"
	"testing"

	"flash/vmm"
)

const usernet = "Hub -1 (net0):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n" +
	"  TCP[HOST_FORWARD]  13       127.0.0.1 18080       10.0.2.15  8080     0     0\r\n" +
	"  TCP[ESTABLISHED]   17       127.0.0.1 40000       10.0.2.15  8080     0     0\r\n" +
	"  TCP[HOST_FORWARD]  11       127.0.0.1 39493       10.0.2.15  8080     0     0\r\n" +
	"  UDP[HOST_FORWARD]  12       127.0.0.1 39494       10.0.2.15  8080     0     0\r\n"

func TestChosenPortIsTheNewOne(t *testing.T) {
	got, err := chosenPort(usernet, 8080, []vmm.Port{{Host: 18080, Guest: 8080}})
	if err != nil || got != (vmm.Port{Host: 39493, Guest: 8080}) {
		t.Errorf("%v %v", got, err)
	}
	if _, err := chosenPort(usernet, 22, nil); err == nil {
		t.Error("a forward that isn't there was found")
	}
}

func TestOldAndUnknownVersionsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright": "7.2.22",
		"QEMU emulator version 10.0.3\n":                                            "10.0.3",
		"QEMU emulator version 7.1.0":                                               "",
		"QEMU emulator version 6.9.9":                                               "",
		"hello":                                                                     "",
		"":                                                                          "",
	} {
		got, err := parseVersion(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestEveryEndHasItsReason(t *testing.T) {
	lost, status := errors.New("page 7 can't be read"), errors.New("signal: killed")
	for name, c := range map[string]struct {
		e              ending
		reason, detail string
		isErr          bool
	}{
		"closed":          {ending{closed: true, status: status}, "closed", "", false},
		"poweroff":        {ending{shutdown: "guest-shutdown", console: "Power down"}, "guest shutdown", "Power down", false},
		"reboot":          {ending{shutdown: "guest-reset", console: "Restarting"}, "guest shutdown", "the guest rebooted; Restarting", false},
		"panic reset":     {ending{shutdown: "guest-reset", console: "Rebooting..", panicLine: "Kernel panic - not syncing: x"}, "guest panic", "Kernel panic - not syncing: x", false},
		"pvpanic":         {ending{panicked: true, shutdown: "guest-panic", console: "last"}, "guest panic", "last", false},
		"killed":          {ending{status: status, processTag: "QEMU"}, "killed", "QEMU: signal: killed", true},
		"crashed":         {ending{status: status, processTag: "QEMU", stderr: "assertion"}, "killed", "assertion", true},
		"SIGTERM":         {ending{shutdown: "host-signal", processTag: "QEMU"}, "killed", "QEMU ended by itself", true},
		"memory":          {ending{memory: lost, status: status}, "memory lost", lost.Error(), true},
		"closed as it is": {ending{closed: true, shutdown: "guest-shutdown", console: "bye"}, "guest shutdown", "bye", false},
		"an old panic":    {ending{closed: true, panicLine: "Kernel panic - not syncing: x"}, "closed", "", false},
	} {
		got := c.e.exit()
		if got.Reason != c.reason || got.Detail != c.detail || (got.Err != nil) != c.isErr {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCPUsThatDifferHaveOtherDigests(t *testing.T) {
	text := "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nstepping\t: 2\nflags\t\t: fpu svm sse\n\nprocessor\t: 1\nflags : none\n"
	c := parseCPUInfo(text)
	if !c.hardwareVirtualization() || c.model != "AuthenticAMD-25-1-2" {
		t.Errorf("%+v", c)
	}
	same := parseCPUInfo(strings.Replace(text, "fpu svm sse", "sse fpu svm", 1))
	less := parseCPUInfo(strings.Replace(text, "fpu svm sse", "fpu sse", 1))
	if same.digest() != c.digest() || less.digest() == c.digest() || less.hardwareVirtualization() {
		t.Errorf("%s %s %s", c.digest(), same.digest(), less.digest())
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w tail
	w.Write([]byte(strings.Repeat("x", 3*tailBytes) + "\nlast \x1b[0mwords\r\n\n"))
	if got := w.lastLine(); got != "last [0mwords" {
		t.Errorf("%q", got)
	}
	if len(w.data) > tailBytes {
		t.Errorf("%d bytes kept", len(w.data))
	}
}

func TestWhatIsNoStateIsRefused(t *testing.T) {
	if checkState([]byte("QEVM\x00\x00\x00\x03rest")) != nil {
		t.Error("a state is refused")
	}
	for _, bad := range []string{"", "QEVM", "QEVM\x00\x00\x00\x02rest", "hello, world"} {
		if checkState([]byte(bad)) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
