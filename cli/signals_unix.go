//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// signalNames are the signals that are passed on to a command.
var signalNames = map[os.Signal]string{syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT"}

func notifySignals(c chan<- os.Signal) {
	for s := range signalNames {
		signal.Notify(c, s)
	}
}

func signalName(s os.Signal) string { return signalNames[s] }

func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
