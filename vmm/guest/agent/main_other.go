//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "flash-agent: runs inside Linux guests only")
	os.Exit(1)
}
