package guest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestExecGivesSeparateStreamsAndExitCode(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{Version: "v", BootID: "b"}), 1)
	var out, errs bytes.Buffer
	status, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"echo", "one", "two", "7"}}, Streams{Stdout: &out, Stderr: &errs})
	if err != nil || status.Code != 7 || out.String() != "one" || errs.String() != "two" {
		t.Fatalf("status %+v, stdout %q, stderr %q, error %v", status, &out, &errs, err)
	}
}

func TestCommandThatCannotStartIsAnAgentError(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	_, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"nothing"}}, Streams{})
	var e *AgentError
	if !errors.As(err, &e) || e.Code != CodeNoCommand {
		t.Fatalf("error %v", err)
	}
	if infos, err := c.Execs(t.Context()); err != nil || len(infos) != 0 {
		t.Fatalf("a command that never ran is listed: %v, %v", infos, err)
	}
}

func TestLargeOutputArrivesUnharmed(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	const n = 20 << 20
	want, got := sha256.New(), sha256.New()
	io.Copy(want, pattern(n))
	if _, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"big", "20971520"}}, Streams{Stdout: got}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatal("the output differs")
	}
}

func TestStdinReachesTheCommand(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	const n = 3 << 20
	want, got := sha256.New(), sha256.New()
	io.Copy(want, pattern(n))
	if _, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"cat"}, Stdin: true}, Streams{Stdin: pattern(n), Stdout: got}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatal("what came back differs")
	}
	var out bytes.Buffer
	if _, err := c.Exec(t.Context(), ExecRequest{ID: "b", Argv: []string{"cat"}, Stdin: true}, Streams{Stdout: &out}); err != nil || out.Len() > 0 {
		t.Fatalf("empty stdin gave %q, %v", &out, err)
	}
}

func TestCopiesArriveUnharmed(t *testing.T) {
	g := newFakeGuest()
	c := connect(t, NewServer(g, Info{}), 1)
	var sent, back bytes.Buffer
	io.Copy(&sent, pattern(2<<20))
	if err := c.CopyIn(t.Context(), "/x", bytes.NewReader(sent.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := c.CopyOut(t.Context(), "/x", &back); err != nil || !bytes.Equal(sent.Bytes(), back.Bytes()) {
		t.Fatalf("%d bytes came back of %d, %v", back.Len(), sent.Len(), err)
	}
	var e *AgentError
	if err := c.CopyOut(t.Context(), "/y", &back); !errors.As(err, &e) || e.Code != CodeNotFound {
		t.Fatalf("error %v", err)
	}
	if err := c.CopyIn(t.Context(), "/missing", strings.NewReader("something")); !errors.As(err, &e) || e.Code != CodeNoDir {
		t.Fatalf("error %v", err)
	}
}
