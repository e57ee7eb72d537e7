package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// On a slow machine with Linux 6.1 some of these starts are seen before the child is what it will be.
func TestChildIsKnownByItsProgramAndCanBeKilled(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		sleep, err = filepath.EvalSymlinks(sleep)
	}
	if err != nil {
		t.Skip(err)
	}
	s := newSpawner()
	defer func() { s.refuse(); s.close() }()
	for range 200 {
		p, err := s.start(program{binary: sleep, args: []string{"1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.id.Exe != sleep {
			t.Errorf("process %d is known as %s, not as %s", p.id.PID, p.id.Exe, sleep)
			if err := unix.Kill(p.id.PID, unix.SIGKILL); err != nil { // end would wait for ever
				t.Fatal(err)
			}
		}
		p.end()
		if isStill(p.id) {
			t.Fatalf("process %+v is still there", p.id)
		}
	}
}

func TestChildThatRunsOurOwnProgramIsKnown(t *testing.T) {
	s := newSpawner()
	defer func() { s.refuse(); s.close() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.start(program{binary: self, args: []string{"-test.run=^$"}})
	if err != nil {
		t.Fatal(err)
	}
	p.end()
}
