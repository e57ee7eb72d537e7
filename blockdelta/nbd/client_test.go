package nbd

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"flash/blockdelta"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// zeroBase is a base of zeros; hold, if set, is called before each read.
type zeroBase struct {
	blocks uint64
	hold   func(ctx context.Context, slot uint64) error
}

func (b zeroBase) Slots() uint64 { return b.blocks }

func (b zeroBase) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	clear(dst)
	if b.hold != nil {
		return b.hold(ctx, slot)
	}
	return ctx.Err()
}

func (b zeroBase) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, slot := range slots {
		if b.hold != nil {
			if err := b.hold(ctx, slot); err != nil {
				return err
			}
		}
		if err := each(slot, nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// serve gives a server with one export "disk0" over the base.
func serve(t testing.TB, base blockdelta.Base) (*Server, *blockdelta.Overlay, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nbd") // t.TempDir may be too long for a socket's path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o, err := blockdelta.New(base, dir)
	must(t, err)
	path := filepath.Join(dir, "s")
	s, err := Listen(path)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = o.Close()
	})
	s.SetExport("disk0", o)
	return s, o, path
}

// client is the other side of the protocol, written against the specification and not against this package's server.
type client struct {
	t      testing.TB
	conn   net.Conn
	size   uint64
	flags  uint16
	cookie uint64

	mu      sync.Mutex // guards sending and waiting
	waiting map[uint64]*pending
	dead    error
}

type pending struct {
	data []byte // room for a READ's
	done chan error
}

func dial(t testing.TB, path string) *client {
	t.Helper()
	c, err := net.Dial("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &client{t: t, conn: c, waiting: map[uint64]*pending{}}
}

func (c *client) greet(flags uint32) {
	c.t.Helper()
	p := make([]byte, 18)
	_, err := io.ReadFull(c.conn, p)
	must(c.t, err)
	if string(p[:16]) != "NBDMAGICIHAVEOPT" || p[17]&1 == 0 {
		c.t.Fatalf("greeting %q", p)
	}
	_, err = c.conn.Write(be.AppendUint32(nil, flags))
	must(c.t, err)
}

func (c *client) option(option uint32, data []byte) {
	c.t.Helper()
	p := append([]byte("IHAVEOPT"), be.AppendUint32(be.AppendUint32(nil, option), uint32(len(data)))...)
	_, err := c.conn.Write(append(p, data...))
	must(c.t, err)
}

// optionReply gives the next reply's type and data.
func (c *client) optionReply(option uint32) (uint32, []byte) {
	c.t.Helper()
	p := make([]byte, 20)
	_, err := io.ReadFull(c.conn, p)
	must(c.t, err)
	if be.Uint64(p) != 0x3e889045565a9 || be.Uint32(p[8:]) != option {
		c.t.Fatalf("option reply %x", p)
	}
	data := make([]byte, be.Uint32(p[16:]))
	_, err = io.ReadFull(c.conn, data)
	must(c.t, err)
	return be.Uint32(p[12:]), data
}

func infoData(name string, kinds ...uint16) []byte {
	p := append(be.AppendUint32(nil, uint32(len(name))), name...)
	p = be.AppendUint16(p, uint16(len(kinds)))
	for _, k := range kinds {
		p = be.AppendUint16(p, k)
	}
	return p
}

// enter chooses an export with GO and begins the transmission.
func enter(t testing.TB, path, name string) *client {
	t.Helper()
	c := dial(t, path)
	c.greet(3)
	c.option(7, infoData(name, 3))
	for {
		kind, data := c.optionReply(7)
		switch {
		case kind == 1:
			go c.receive()
			return c
		case kind == 3 && be.Uint16(data) == 0:
			c.size, c.flags = be.Uint64(data[2:]), be.Uint16(data[10:])
		case kind != 3:
			t.Fatalf("GO was answered %#x %q", kind, data)
		}
	}
}

func (c *client) receive() {
	for {
		var p [16]byte
		_, err := io.ReadFull(c.conn, p[:])
		if err == nil && be.Uint32(p[:]) != 0x67446698 {
			err = fmt.Errorf("reply %x", p)
		}
		c.mu.Lock()
		if err != nil {
			c.dead = err
			for _, w := range c.waiting {
				w.done <- err
			}
			c.mu.Unlock()
			return
		}
		w := c.waiting[be.Uint64(p[8:])]
		delete(c.waiting, be.Uint64(p[8:]))
		c.mu.Unlock()
		if errno := be.Uint32(p[4:]); errno != 0 {
			w.done <- errnoError(errno)
			continue
		}
		_, err = io.ReadFull(c.conn, w.data)
		w.done <- err
	}
}

type errnoError uint32

func (e errnoError) Error() string { return fmt.Sprintf("errno %d", uint32(e)) }

// send starts a request; its answer comes out of the channel. data is sent by a WRITE and filled by a READ.
func (c *client) send(command, flags uint16, off uint64, length uint32, data []byte) chan error {
	p := be.AppendUint32(nil, 0x25609513)
	p = be.AppendUint16(be.AppendUint16(p, flags), command)
	w := &pending{done: make(chan error, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		w.done <- c.dead
		return w.done
	}
	c.cookie++
	p = be.AppendUint32(be.AppendUint64(be.AppendUint64(p, c.cookie), off), length)
	if command == 0 {
		w.data = data
	}
	if command == 1 {
		p = append(p, data...)
	}
	c.waiting[c.cookie] = w
	if _, err := c.conn.Write(p); err != nil {
		delete(c.waiting, c.cookie)
		w.done <- err
	}
	return w.done
}

func (c *client) read(p []byte, off uint64) error  { return <-c.send(0, 0, off, uint32(len(p)), p) }
func (c *client) write(p []byte, off uint64) error { return <-c.send(1, 0, off, uint32(len(p)), p) }
func (c *client) flush() error                     { return <-c.send(3, 0, 0, 0, nil) }
func (c *client) zeroes(off uint64, n uint32) error {
	return <-c.send(6, 0, off, n, nil)
}
