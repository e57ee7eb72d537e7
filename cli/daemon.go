package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

const (
	startTimeout   = 60 * time.Second // for a new daemon to answer: it may have a store to recover
	startPoll      = 20 * time.Millisecond
	maxLogBytes    = 8 << 20 // then the log is set aside as flash.log.1
	maxReasonBytes = 64 << 10
)

// connect gives the daemon's client, and starts a daemon when none answers.
func (a *app) connect(ctx context.Context) (host.API, error) {
	home, err := a.homeDir()
	if err != nil {
		return nil, err
	}
	c := httpapi.NewClient(socketPath(home))
	err = c.Health(ctx)
	if httpapi.CodeOf(err) == host.CodeDaemon {
		err = startDaemon(ctx, home, c)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	a.client = c
	return c, nil
}

// startDaemon starts flash serve in a session of its own and waits until it answers. Of two clients that come at
// once, the lock lets one start it; the other finds it running.
func startDaemon(ctx context.Context, home string, c *httpapi.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, host.Errorf(host.CodeDaemon, "its log "+logPath(home)+" may say why",
		"the daemon that was started hasn't answered after %s", startTimeout))
	defer cancel()
	if err := os.MkdirAll(home, 0o700); err != nil {
		return host.Errorf(host.CodeDaemon, "give a home you may write to with --home or FLASH_HOME", "starting the daemon: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(home, "start.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.Health(ctx); httpapi.CodeOf(err) != host.CodeDaemon {
		return err // somebody else has started it meanwhile
	}
	log, err := openLog(home)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return host.Errorf(host.CodeDaemon, "look at the file", "the daemon's log: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return host.Errorf(host.CodeDaemon, "start it with flash serve", "starting the daemon: finding this program: %w", err)
	}
	cmd := exec.Command(self, "serve", "--home", home, "--json") // JSON: for lastWords
	cmd.Dir = "/"                                                // it must not keep the caller's folder busy
	if vol := filepath.VolumeName(home); vol != "" {
		cmd.Dir = vol + `\`
	}
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return host.Errorf(host.CodeDaemon, "start it with flash serve", "starting the daemon: %w", err)
	}
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }() // ends with the daemon, or with us
	return awaitDaemon(ctx, c, died, func(err error) error { return lastWords(log, begin, err) })
}

// awaitDaemon waits until the daemon answers, has died, or ctx ends.
func awaitDaemon(ctx context.Context, c *httpapi.Client, died <-chan error, why func(error) error) error {
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		select {
		case err := <-died:
			return why(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if err := c.Health(ctx); httpapi.CodeOf(err) != host.CodeDaemon {
				return err
			}
		}
	}
}

// lastWords tells why a daemon died from what it wrote to its log since begin: the error it gave, which keeps its code,
// else the last line.
func lastWords(log io.ReaderAt, begin int64, exit error) error {
	const sentence = "the daemon ended as soon as it was started: %s"
	p, err := io.ReadAll(io.NewSectionReader(log, begin, maxReasonBytes))
	if err != nil {
		p = nil
	}
	p = bytes.TrimSpace(p)
	for at := len(p); at > 0; { // the error is the last JSON value; lines of the log come before
		if at = bytes.LastIndex(p[:at], []byte("{")); at < 0 {
			break
		}
		var told httpapi.ErrorBody
		if json.Unmarshal(p[at:], &told) == nil && told.Error != nil {
			return host.Errorf(told.Error.Code, told.Error.Remedy, sentence, told.Error.Message)
		}
	}
	said := "it said nothing"
	if len(p) > 0 {
		said = string(p[bytes.LastIndexByte(p, '\n')+1:])
	} else if exit != nil {
		said = exit.Error()
	}
	return host.Errorf(host.CodeDaemon, "flash serve runs it in the foreground and shows more", sentence, said)
}

// openLog opens the daemon's log for appending, and sets a long one aside.
func openLog(home string) (*os.File, error) {
	path := logPath(home)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		os.Rename(path, path+".1") // if it can't be, it grows
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, host.Errorf(host.CodeDaemon, "give a home you may write to with --home or FLASH_HOME", "the daemon's log: %w", err)
	}
	return f, nil
}

// lockFile waits for the lock on a file, which ends with the process at the latest.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, host.Errorf(host.CodeDaemon, "give a home you may write to with --home or FLASH_HOME", "starting the daemon: %w", err)
	}
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		err := tryLock(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, errLocked) {
			f.Close()
			return nil, host.Errorf(host.CodeDaemon, "start it with flash serve", "starting the daemon: locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
