package host

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"flash/vmm/guest"
)

func TestRefusedCommandIsToldInWordsOfTheUser(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	for _, tc := range []struct {
		r    guest.ExecRequest
		want string
	}{
		{guest.ExecRequest{Argv: []string{"nosuchcmd", "-x"}}, "nosuchcmd: no such command in a"},
		{guest.ExecRequest{Argv: []string{"true"}, User: "carol"}, "carol: no such user in a"},
		{guest.ExecRequest{Argv: []string{"true"}, Cwd: "/nowhere"}, "/nowhere: no such folder in a"},
	} {
		_, err := w.Exec(t.Context(), ExecRequest{ID: "a", Command: tc.r}, guest.Streams{})
		w.fails(err, CodeExecFailed)
		if err.Error() != tc.want {
			t.Errorf("%q, want %q", err, tc.want)
		}
	}
	for code, want := range map[string]Code{
		guest.CodeNotExecutable: CodeExecFailed, guest.CodePermission: CodeExecFailed, guest.CodeFailed: CodeExecFailed, guest.CodeInvalid: CodeInvalid,
	} {
		err := refusedExec("a", guest.ExecRequest{ID: "e5c9", Argv: []string{"./run"}}, &guest.AgentError{Code: code, Message: "it\nwon't"})
		w.fails(err, want)
		if strings.Contains(err.Message+err.Remedy, "e5c9") || !strings.Contains(err.Message, "./run") {
			t.Errorf("%s: %q", code, err)
		}
	}
}

func TestMissingPathOfACopyIsNoBug(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	var out bytes.Buffer
	err := w.CopyOut(t.Context(), "a", "/nowhere", &out)
	w.fails(err, CodePathNotFound)
	if err.Error() != "a has no /nowhere" {
		t.Error(err)
	}
	err = w.CopyIn(t.Context(), "a", "/nowhere", bytes.NewReader(make([]byte, 1024)))
	w.fails(err, CodePathNotFound)
	if e := (*Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Remedy, "mkdir -p /nowhere") {
		t.Errorf("%q has no way out: %q", e.Message, e.Remedy)
	}
}
