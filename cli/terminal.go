package cli

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/term"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// terminal is ours, in raw mode: every key goes to the command.
type terminal struct {
	size    guest.WindowSize
	resize  <-chan guest.WindowSize
	restore func()
}

// rawTerminal takes our terminal over until restore. Without a terminal the command gets one of the usual size.
func (a *app) rawTerminal() (*terminal, error) {
	if !isTerminal(a.stdin) {
		return &terminal{size: guest.WindowSize{Rows: 24, Cols: 80}, restore: func() {}}, nil
	}
	fd := int(a.stdin.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, host.Errorf(host.CodeUnsupported, "leave -t out", "taking the terminal over: %w", err)
	}
	sizes := make(chan guest.WindowSize, 1)
	changed := make(chan os.Signal, 1)
	done := make(chan struct{})
	notifyResize(changed)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-changed:
				select {
				case <-sizes: // only the newest counts
				default:
				}
				sizes <- terminalSize(fd)
			case <-done:
				return
			}
		}
	})
	return &terminal{size: terminalSize(fd), resize: sizes, restore: func() {
		signal.Stop(changed)
		close(done)
		wg.Wait()
		term.Restore(fd, before)
	}}, nil
}

func terminalSize(fd int) guest.WindowSize {
	cols, rows, err := term.GetSize(fd)
	if err != nil || cols <= 0 || rows <= 0 || cols > 0xffff || rows > 0xffff {
		return guest.WindowSize{Rows: 24, Cols: 80}
	}
	return guest.WindowSize{Rows: uint16(rows), Cols: uint16(cols)}
}
