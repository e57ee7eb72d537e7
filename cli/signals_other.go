//go:build !unix

package cli

import (
	"os"
	"os/signal"
)

// notifySignals: without unix signals ^C is all there is.
func notifySignals(c chan<- os.Signal) { signal.Notify(c, os.Interrupt) }

func signalName(os.Signal) string { return "INT" }

// notifyResize: this system doesn't signal a changed window; the command keeps the size it began with.
func notifyResize(chan<- os.Signal) {}
