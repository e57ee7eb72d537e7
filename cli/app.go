package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

// opener builds the host of a home; the closer ends it and all its machines' processes.
type opener func(ctx context.Context, home string, log *slog.Logger) (host.API, io.Closer, error)

// app is what every command shares.
type app struct {
	stdin  *os.File
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	open   opener

	home    string // --home as given
	json    bool   // --json
	started bool   // a command's own code has begun: what fails before is wrong usage
	client  *httpapi.Client
}

// homeDir is where all state lies: --home, FLASH_HOME, or the system's place for it.
func (a *app) homeDir() (string, error) {
	dir := a.home
	if dir == "" {
		dir = a.getenv("FLASH_HOME")
	}
	if dir == "" && os.Geteuid() == 0 {
		dir = "/var/lib/flash"
	}
	if dir == "" {
		data := a.getenv("XDG_DATA_HOME")
		if data == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return "", host.Errorf(host.CodeInvalid, "give --home or set FLASH_HOME", "there is no place for flash's state: %w", err)
			}
			data = filepath.Join(user, ".local", "share")
		}
		dir = filepath.Join(data, "flash")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", host.Errorf(host.CodeInvalid, "give an absolute --home", "the home %s: %w", dir, err)
	}
	return abs, nil
}

func socketPath(home string) string { return filepath.Join(home, "flash.sock") }
func logPath(home string) string    { return filepath.Join(home, "flash.log") }

// run wraps a command's code: from here on failures are failures and not wrong usage.
func (a *app) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}

// withAPI is run for a command that asks the daemon, which is started when there is none.
func (a *app) withAPI(f func(ctx context.Context, api host.API, args []string) error) func(*cobra.Command, []string) error {
	return a.run(func(cmd *cobra.Command, args []string) error {
		api, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		return f(cmd.Context(), api, args)
	})
}

// usageError is wrong usage found by a command itself.
type usageError struct{ error }

// exitStatus is a guest command's own exit code, passed on without a word.
type exitStatus int

func (exitStatus) Error() string { return "the command's own exit code" }

// notRun is a failure of exec before the command ran.
type notRun struct{ error }

func (e notRun) Unwrap() error { return e.error }

// report tells a failure and gives the exit code.
func (a *app) report(err error) int {
	var status exitStatus
	if err == nil {
		return 0
	} else if errors.As(err, &status) {
		return int(status)
	}
	var e *host.Error
	code := 0
	var usage usageError
	var early notRun
	switch {
	case errors.As(err, &usage), !a.started && !errors.As(err, &e):
		e = &host.Error{Code: host.CodeInvalid, Message: err.Error(), Remedy: "flash --help, or flash COMMAND --help, shows how it is used"}
		code = httpapi.ExitUsage
	default:
		e = httpapi.ErrorOf(err)
		code = httpapi.ExitOf(e.Code)
	}
	if errors.As(err, &early) && code != httpapi.ExitUsage {
		code = httpapi.ExitNotRun
	}
	if a.json {
		a.printJSON(httpapi.ErrorBody{Error: e})
		return code
	}
	a.say("flash: %s", oneLine(e.Message))
	if e.Remedy != "" {
		a.say("hint: %s", oneLine(e.Remedy))
	}
	return code
}

// oneLine keeps an error on one line, whatever a guest or a kernel put into it.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// isTerminal tells whether a stream of ours is one a human looks at.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
