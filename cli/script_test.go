package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"flash/cli/httpapi"
)

// TestMain lets the scripts run this test binary as flash, over the fake engine.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"flash": func() {
		a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, open: openFake}
		os.Exit(a.main(context.Background(), os.Args[1:]))
	}})
}

// tests runs all and then ends what they shared.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer endShared()
	return m.M.Run()
}

// TestStories runs testdata/script/*.txtar. Each has a home of its own; its daemon ends with it.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			// $WORK may be too long for a socket.
			home, err := os.MkdirTemp("", "fl")
			if err != nil {
				return err
			}
			e.Setenv("FLASH_HOME", home)
			e.Defer(func() { endDaemon(t, home) })
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":     exits,
			"fields":    fields,
			"signalled": signalled,
		},
	})
}

// endDaemon ends a story's daemon, if it left one, and removes the home.
func endDaemon(t *testing.T, home string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := httpapi.NewClient(socketPath(home))
	defer c.Close()
	if err := c.Shutdown(ctx); err == nil {
		if unlock, err := lockFile(ctx, filepath.Join(home, "daemon.lock")); err != nil {
			t.Errorf("the story's daemon goes on: %v", err)
		} else {
			unlock()
		}
	}
	os.RemoveAll(home)
}

// exits CODE COMMAND… runs a command that must exit with CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = strconv.Itoa(exit.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

// fields FILE NAME… says that the JSON in a file is an object, or a list of at least one, with fields of these names.
func fields(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile(args[0])
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		var one map[string]any
		ts.Check(json.Unmarshal([]byte(text), &one))
		list = append(list, one)
	}
	if len(list) == 0 {
		ts.Fatalf("the list is empty")
	}
	for _, element := range list {
		for _, name := range args[1:] {
			if _, ok := element[name]; !ok {
				ts.Fatalf("there is no field %s in %s", name, text)
			}
		}
	}
}

// signalled COMMAND… runs a command, sends it SIGTERM once it has written something, and keeps its stdout.
func signalled(ts *testscript.TestScript, neg bool, args []string) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "FLASH_HOME="+ts.Getenv("FLASH_HOME"))
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	first := make([]byte, 1)
	_, err = io.ReadFull(out, first)
	ts.Check(err)
	ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(out)
	ts.Check(err)
	cmd.Wait() // its exit code is the script's to check in the output
	ts.Stdout().Write(append(first, rest...))
}
