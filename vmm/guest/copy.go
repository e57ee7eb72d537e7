package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// CopyIn unpacks a tar stream below dir in the guest, with owners, modes, times, links and xattrs. Paths can't leave dir.
func (c *Client) CopyIn(ctx context.Context, dir string, tar io.Reader) error {
	k := &call{to: newOutStream(windowBytes)}
	k.to.announce = true
	if err := c.begin(k, opCopyIn, pathBody{Path: dir}); err != nil {
		return fmt.Errorf("copy into %s: %w", dir, err)
	}
	k.to.attach(c.link, c.generation, k.id, streamIn, 0)
	read := make(chan error, 1)
	go func() { read <- copyUntilEnded(k.to, tar) }()
	var err error
	waiting := true
	for waiting {
		select {
		case err = <-read:
			read = nil
			waiting = err == nil
		case <-k.done:
			err, waiting = k.err, false
		case <-ctx.Done():
			err, waiting = context.Cause(ctx), false
		}
	}
	k.to.end()
	if read != nil {
		briefly(read)
	}
	if err != nil {
		c.cancel(k)
		return fmt.Errorf("copy into %s: %w", dir, err)
	}
	return nil
}

// CopyOut packs a file or folder of the guest as a tar stream, named relative to its parent.
func (c *Client) CopyOut(ctx context.Context, path string, tar io.Writer) error {
	k := &call{}
	k.from[streamOut] = newInStream(false, func(consumed, limit uint64) {
		c.link.send(creditFrame(c.generation, k.id, streamOut, consumed, limit))
	})
	if err := c.begin(k, opCopyOut, pathBody{Path: path}); err != nil {
		return fmt.Errorf("copy %s out: %w", path, err)
	}
	written := make(chan error, 1)
	go func() { written <- k.from[streamOut].copyTo(tar) }()
	err := c.receive(ctx, k, written)
	if err != nil {
		k.from[streamOut].fail(err)
		c.cancel(k)
		briefly(written)
		return fmt.Errorf("copy %s out: %w", path, err)
	}
	return nil
}

// receive waits for the response and for the stream to have been written.
func (c *Client) receive(ctx context.Context, k *call, written <-chan error) error {
	done := k.done
	for {
		select {
		case err := <-written:
			return err // nil only at the end that finish below has set
		case <-done:
			done = nil
			if k.err != nil {
				return k.err
			}
			var reply copyReply
			if err := json.Unmarshal(k.reply, &reply); err != nil {
				return fmt.Errorf("the agent's answer: %w", err)
			}
			if err := k.from[streamOut].finish(reply.Bytes); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// copyUntilEnded copies r into a stream and ends it, unless it has been ended already.
func copyUntilEnded(to *outStream, r io.Reader) error {
	buf := make([]byte, maxDataBytes)
	for !to.hasEnded() {
		n, err := r.Read(buf)
		to.Write(buf[:n])
		if err == io.EOF {
			to.end()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// briefly waits for a caller's reader or writer to return, but not if it hangs.
func briefly(done <-chan error) {
	timer := time.NewTimer(graceLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
