package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

func TestTCPIsServedWithTheTokenItMade(t *testing.T) {
	home, err := os.MkdirTemp("", "fl") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	tokenFile := filepath.Join(home, "token")
	said, stderr := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &app{stdin: os.Stdin, stdout: io.Discard, stderr: stderr, getenv: os.Getenv, open: openFake}
	ended := make(chan int, 1)
	go func() {
		code := a.main(ctx, []string{"serve", "--home", home, "--listen", "tcp:127.0.0.1:0", "--token-file", tokenFile})
		stderr.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(said)
	addr := ""
	for addr == "" && lines.Scan() {
		_, addr, _ = strings.Cut(lines.Text(), "serves at tcp:")
	}
	go io.Copy(io.Discard, said)
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(tokenFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token is others' too: %v %v", info.Mode(), err)
	}
	for given, want := range map[string]host.Code{strings.TrimSpace(string(token)): "", strings.Repeat("x", 52): host.CodeUnauthorized} {
		c := httpapi.NewTCPClient(addr, given)
		if _, err := c.List(ctx); httpapi.CodeOf(err) != want {
			t.Errorf("%q: %v", given, err)
		}
		c.Close()
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if _, err := os.Stat(socketPath(home)); err == nil {
		t.Error("its socket is left")
	}
}

func TestShortTokenIsRefused(t *testing.T) {
	home, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	tokenFile := filepath.Join(home, "token")
	if err := os.WriteFile(tokenFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{stdin: os.Stdin, stdout: io.Discard, stderr: io.Discard, getenv: os.Getenv, open: openFake}
	if code := a.main(t.Context(), []string{"serve", "--home", home, "--listen", "tcp:127.0.0.1:0", "--token-file", tokenFile}); code != httpapi.ExitRefused {
		t.Errorf("it ended with %d", code)
	}
}

func TestHomeIsFoundWhereItShouldBe(t *testing.T) {
	env := map[string]string{"FLASH_HOME": "/env", "XDG_DATA_HOME": "/data"}
	a := &app{getenv: func(k string) string { return env[k] }}
	expect := func(want string) {
		t.Helper()
		if got, err := a.homeDir(); err != nil || got != filepath.FromSlash(want) {
			t.Errorf("%s %v, want %s", got, err, want)
		}
	}
	a.home = "/flag"
	expect("/flag")
	a.home = ""
	expect("/env")
	env["FLASH_HOME"] = ""
	if os.Geteuid() == 0 {
		expect("/var/lib/flash")
	} else {
		expect("/data/flash")
	}
}
