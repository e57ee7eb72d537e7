package qemu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"flash/vmm"
)

// A host that dies takes its machines along, however it dies.
func TestQEMUEndsWithItsHost(t *testing.T) {
	if os.Getenv("FLASH_TEST_HOST") != "" {
		playHost(t)
		return
	}
	testEngine(t, Config{})
	host := exec.Command(os.Args[0], "-test.run=^TestQEMUEndsWithItsHost$")
	host.Env = append(os.Environ(), "FLASH_TEST_HOST=1")
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var child vmm.Process
	line, err := bufio.NewReader(out).ReadBytes('\n')
	host.Process.Kill()
	host.Wait()
	if err != nil || json.Unmarshal(line, &child) != nil || child.PID == 0 {
		t.Fatalf("the host said %q, %v", line, err)
	}
	for deadline := time.Now().Add(10 * time.Second); isStill(child); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v outlived its host", child)
		}
	}
}

// playHost starts a waiting QEMU, says which, and waits to be killed.
func playHost(t *testing.T) {
	e, err := New(Config{PoolSize: -1, Accel: "tcg"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.spawn(t.Context(), shape{facts: c.Facts, vcpus: 1, memBytes: testMemBytes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := json.Marshal(in.id)
	fmt.Println(string(line))
	time.Sleep(time.Minute)
}
