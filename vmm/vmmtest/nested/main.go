package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		runInit() // doesn't return
	}
	memMiB := flag.Int("m", 3072, "memory of the outer machine, MiB")
	seconds := flag.Int("t", 300, "time for everything, seconds")
	verbose := flag.Bool("v", false, "show the console")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: nested [-m MIB] [-t SECONDS] [-v] COMMAND [ARG...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*seconds)*time.Second)
	status, err := run(ctx, outer{memMiB: *memMiB, verbose: *verbose, command: flag.Args()})
	if err != nil {
		fmt.Fprintln(os.Stderr, "nested:", err)
		status = exitFailed
		if errors.Is(err, context.DeadlineExceeded) {
			status = exitTimeout
		}
	}
	cancel()
	stop()
	os.Exit(status)
}
