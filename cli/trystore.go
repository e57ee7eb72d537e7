package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flash/store"
)

const (
	tryStoreName  = "try-store"
	tryTimeout    = 45 * time.Second // below startTimeout, so that the client hears of it
	lastWordBytes = 200
)

// tryStoreCmd is this program as the process that may die of a damaged database in the daemon's place.
func tryStoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:    tryStoreName + " DIR",
		Short:  "open and close a store's database",
		Hidden: true,
		Args:   exactArgs("a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			store.TryOpen(args[0])
			return nil
		},
	}
}

// tryStore runs try-store and tells how it died, if it did.
func tryStore(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("try the database: no answer after %s: %w", tryTimeout, context.DeadlineExceeded))
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("try the database: finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, tryStoreName, dir)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second
	dieWithUs(cmd)
	runtime.LockOSThread() // the kernel takes the end of the thread that started a child for the parent's
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &exit):
		return fmt.Errorf("try the database: %w", err)
	}
	return store.DiedTrying(lastWordsOf(said.String(), exit))
}

// lastWordsOf takes the line of a dead Go process that says why.
func lastWordsOf(said string, exit *exec.ExitError) string {
	for line := range strings.Lines(said) {
		for _, why := range []string{"panic: ", "fatal error: ", "unexpected fault address"} {
			if at := strings.Index(line, why); at >= 0 {
				return strings.TrimSpace(line[at:min(len(line), at+lastWordBytes)])
			}
		}
	}
	return exit.Error()
}
