package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"flash/vmm/guest"
)

var vmFiles = map[string]string{
	"etc/flash/hooks.d/10-note":  "#!/bin/sh\necho $FLASH_VM $FLASH_GENERATION $(hostname) $(date +%Y) >> /tmp/hooked\n",
	"etc/flash/hooks.d/20-maybe": "#!/bin/sh\nsetsid sleep 1000 &\ntest ! -e /tmp/fail || { echo sorry; exit 3; }\n",
	"etc/flash/hooks.d/README":   "not executable\n",
}

func TestAgentInAMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	m := bootVM(t, vmFiles)
	for _, promise := range execPromises {
		t.Run(promise.name, func(t *testing.T) { promise.keep(t, m.place) })
	}
	t.Run("UserOfTheGuestHasAHomeAndGroups", func(t *testing.T) {
		out, _, _ := m.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", "echo $USER $HOME $PWD $(id -u) $(id -G)"}, User: "ann"}, "")
		if out != "ann /home/ann /home/ann 1000 1000 50\n" {
			t.Fatalf("%q", out)
		}
	})
	t.Run("CopyKeepsEverything", func(t *testing.T) { copyKeepsEverything(t, m.place) })
	t.Run("CopyCannotLeaveItsFolder", func(t *testing.T) { copyCannotLeaveItsFolder(t, m.place) })
	t.Run("RepairPutsEverythingRight", m.repairPutsEverythingRight)
	t.Run("FailedRepairLeavesTheWorkloadFrozen", m.failedRepairLeavesFrozen)
	t.Run("OutputGoesOnAfterTheHostWasAway", m.outputGoesOn)
	t.Run("SyncFS", func(t *testing.T) {
		if err := m.client.SyncFS(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Shutdown", func(t *testing.T) {
		if err := m.client.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.waitExit(t)
	})
}

func (m *machine) waitExit(t *testing.T) {
	t.Helper()
	select {
	case <-m.exited:
	case <-time.After(time.Minute):
		t.Fatal("the machine goes on")
	}
}

func (m *machine) repairPutsEverythingRight(t *testing.T) {
	if err := m.client.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	future := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	err := m.client.Repair(t.Context(), guest.Repair{Now: future, Seed: bytes.Repeat([]byte{7}, 64), Generation: "life-2",
		Hostname: "child", MAC: "52:54:00:00:00:99", Hooks: true, Thaw: true})
	if err != nil {
		t.Fatal(err)
	}
	out := m.sh(t, "date +%s; cat /run/flash/generation /sys/class/net/eth0/address; hostname; ip route; cat /tmp/hooked; test ! -e /sys/fs/cgroup/flash.hooks/hook && echo no hook left")
	seconds, rest, _ := strings.Cut(out, "\n")
	if now, _ := strconv.ParseInt(seconds, 10, 64); now < future.Unix() || now > future.Unix()+30 {
		t.Errorf("the clock says %s, not %d", seconds, future.Unix())
	}
	want := "life-2\n52:54:00:00:00:99\nchild\ndefault via 10.0.2.2 dev eth0 \n10.0.2.0/24 dev eth0 scope link  src 10.0.2.15 \nchild life-2 child 2031\nno hook left\n"
	if rest != want {
		t.Errorf("got  %q\nwant %q", rest, want)
	}
	if err := m.client.Repair(t.Context(), guest.Repair{Now: time.Now(), Seed: bytes.Repeat([]byte{8}, 64)}); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	out = m.sh(t, "date +%s")
	if now, _ := strconv.ParseInt(strings.TrimSpace(out), 10, 64); now < before.Unix()-1 || now > time.Now().Unix()+1 {
		t.Errorf("the clock says %q, not %d", out, before.Unix())
	}
}

func (m *machine) failedRepairLeavesFrozen(t *testing.T) {
	m.sh(t, "touch /tmp/fail")
	for name, r := range map[string]guest.Repair{
		"no seed":      {Generation: "a-2", Thaw: true},
		"short seed":   {Seed: []byte("short"), Thaw: true},
		"bad MAC":      {Seed: bytes.Repeat([]byte{7}, 64), MAC: "nonsense", Thaw: true},
		"failing hook": {Seed: bytes.Repeat([]byte{7}, 64), Hooks: true, Thaw: true},
	} {
		if err := m.client.Freeze(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		err := m.client.Repair(t.Context(), r)
		var e *guest.AgentError
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "failing hook" && !strings.Contains(err.Error(), "20-maybe: exit status 3: sorry") {
			t.Errorf("%v", err)
		}
		time.Sleep(100 * time.Millisecond) // longer than the limit, which mustn't count any more
		m.refused(t, guest.CodeFrozen, guest.ExecRequest{Argv: []string{"true"}})
		if err := m.client.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.sh(t, "rm /tmp/fail")
}

// outputGoesOn cuts the channel in the middle of a large stream, again and again.
func (m *machine) outputGoesOn(t *testing.T) {
	const lines = 400000
	id := newID()
	var got bytes.Buffer
	generation := uint64(1)
	r := guest.ExecRequest{ID: id, KeepOnCancel: true, Argv: []string{"seq", strconv.Itoa(lines)}}
	for cuts := 0; ; cuts++ {
		limit := got.Len() + 300000
		ctx, cancel := context.WithCancel(t.Context())
		w := writerFunc(func(p []byte) (int, error) {
			got.Write(p)
			if got.Len() > limit {
				cancel()
			}
			return len(p), nil
		})
		var err error
		if cuts == 0 {
			_, err = m.client.Exec(ctx, r, guest.Streams{Stdout: w})
		} else {
			_, err = m.client.AttachExecAt(ctx, id, guest.Offsets{Stdout: uint64(got.Len())}, guest.Streams{Stdout: w})
		}
		cancel()
		if err == nil {
			if cuts < 3 {
				t.Fatalf("only %d cuts", cuts)
			}
			break
		}
		m.client.Close()
		generation++
		m.connect(generation)
	}
	want := new(bytes.Buffer)
	for i := range lines {
		fmt.Fprintln(want, i+1)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Fatalf("%d bytes came, want %d, or they differ", got.Len(), want.Len())
	}
}

func TestBootThatCannotGoOnSaysWhyAndPowersOff(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	m := startVM(t, map[string]string{"run": "a file where a folder must be"})
	m.waitExit(t)
	if out := m.console(); !strings.Contains(out, "flash-agent: mount /run: ") {
		t.Fatalf("the console says:\n%s", out)
	}
}

func TestAgentRunsBesideAnotherInit(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	m := bootVM(t, map[string]string{
		"etc/flash/init": "/sbin/other --flag\n",
		"sbin/other":     "#!/bin/sh\necho other init $$ $1 > /run/other\nwhile :; do sleep 1; done\n",
	})
	out := m.sh(t, "cat /run/other; tr '\\0' ' ' < /proc/1/cmdline; cat /proc/self/cgroup | cut -d/ -f2")
	if !strings.HasPrefix(out, "other init 1 --flag\n") || !strings.Contains(out, "/sbin/other") || !strings.HasSuffix(out, "flash\n") {
		t.Fatalf("%q", out)
	}
}
