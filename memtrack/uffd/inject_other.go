//go:build linux && !amd64

package uffd

import (
	"context"
	"fmt"
	"runtime"

	"flash/memtrack"
)

// injectReason says why inject can't work here; nil when it may.
var injectReason error = fmt.Errorf("running system calls inside a machine's process is written for amd64, this is %s: %w", runtime.GOARCH, memtrack.ErrUnsupported)

func inject(context.Context, int, func(caller) error) error { return injectReason }
