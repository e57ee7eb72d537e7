//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
)

// outer is what is to be run.
type outer struct {
	memMiB  int
	verbose bool
	command []string
}

func run(context.Context, outer) (int, error) {
	return exitFailed, errors.New("the machine inside runs this very program, which must be one for Linux on x86")
}

func runInit() {}
