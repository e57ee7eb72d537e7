package cli

import (
	"context"
	"io"
	"log/slog"

	"flash/vmm/host"
)

// open builds the host of a home from its parts: the store over its packs, and the engine.
func open(ctx context.Context, home string, log *slog.Logger) (host.API, io.Closer, error) {
	return nil, nil, host.Errorf(host.CodeNoEngine, "build a flash that has one", "this build has no engine")
}
