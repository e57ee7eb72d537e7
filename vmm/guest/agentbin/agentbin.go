// Package agentbin carries the guest agent's executable inside the host's, put there by make build.
package agentbin

import (
	"embed"
	"errors"
	"runtime"
)

//go:embed all:bin
var files embed.FS

// ErrMissing says that this program was built without make.
var ErrMissing = errors.New("this flash was built without its guest agent; build it with make build")

// Agent gives the static Linux executable for this host's architecture.
func Agent() ([]byte, error) {
	b, err := files.ReadFile("bin/agent-" + runtime.GOARCH)
	if err != nil {
		return nil, ErrMissing
	}
	return b, nil
}
