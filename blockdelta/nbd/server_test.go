package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"flash/blockdelta"
)

const block = blockdelta.BlockBytes

func TestServerIsAPlainDisk(t *testing.T) {
	_, _, path := serve(t, zeroBase{blocks: 64})
	c := enter(t, path, "disk0")
	if c.size != 64*block || c.flags != 1|4|8|32|64|256 {
		t.Fatalf("size %d, flags %#x", c.size, c.flags)
	}
	disk := make([]byte, c.size)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		off := rng.IntN(len(disk))
		n := rng.IntN(min(len(disk)-off, 5*block) + 1)
		switch rng.IntN(4) {
		case 0:
			must(t, <-c.send(uint16(4+2*rng.IntN(2)), uint16(rng.IntN(2)), uint64(off), uint32(n), nil))
			clear(disk[off : off+n])
		case 1:
			for i := range n {
				disk[off+i] = byte(rng.Uint32())
			}
			must(t, <-c.send(1, uint16(rng.IntN(2)), uint64(off), uint32(n), disk[off:off+n]))
			must(t, c.flush())
		default:
			got := make([]byte, n)
			must(t, c.read(got, uint64(off)))
			if !bytes.Equal(got, disk[off:off+n]) {
				t.Fatalf("%d bytes at %d differ", n, off)
			}
		}
	}
	other := enter(t, path, "disk0")
	got := make([]byte, len(disk))
	must(t, other.read(got, 0))
	if !bytes.Equal(got, disk) {
		t.Fatal("a second connection sees another disk")
	}
}

func TestBadRequestsAreRefusedAndHarmless(t *testing.T) {
	s, _, path := serve(t, zeroBase{blocks: 16 << 10}) // 64 MiB
	c := enter(t, path, "disk0")
	const size = 64 << 20
	want := bytes.Repeat([]byte{7}, 100)
	must(t, c.write(want, size-100))
	for name, r := range map[string]struct {
		command, flags uint16
		off            uint64
		length         uint32
		errno          errnoError
	}{
		"read beyond the end":        {0, 0, size - 1, 2, 22},
		"read at the last offset":    {0, 0, math.MaxUint64, 4096, 22},
		"read that wraps":            {0, 0, math.MaxUint64 - 100, 101, 22},
		"read too long":              {0, 0, 0, MaxRequestBytes + 1, 22},
		"read absurdly long":         {0, 0, 0, math.MaxUint32, 22},
		"trim beyond the end":        {4, 0, size - 4096, 8192, 22},
		"zeroes beyond the end":      {6, 0, 0, math.MaxUint32, 28},
		"zeroes that wrap":           {6, 0, math.MaxUint64, math.MaxUint32, 28},
		"unknown command":            {99, 0, 0, 0, 22},
		"cache":                      {5, 0, 0, 4096, 22},
		"block status":               {7, 0, 0, 4096, 22},
		"unknown flag":               {0, 0x80, 0, 4096, 22},
		"no hole on a read":          {0, 2, 0, 4096, 22},
		"fast zero, not advertised":  {6, 16, 0, 4096, 22},
		"flush of a range":           {3, 0, 4096, 4096, 22},
		"write of nothing past it":   {1, 0, size + 1, 0, 28},
		"zeroes past it, of nothing": {6, 0, math.MaxUint64, 0, 28},
	} {
		if err := <-c.send(r.command, r.flags, r.off, r.length, nil); err != r.errno {
			t.Errorf("%s: %v, want %v", name, err, r.errno)
		}
	}
	for _, n := range []int{4096, MaxRequestBytes + 1} { // data of a refused write is skipped, so the next request is found
		if err := <-c.send(1, 0, size-100, uint32(n), make([]byte, n)); err == nil {
			t.Errorf("a write of %d bytes at the end of the disk succeeded", n)
		}
	}
	got := make([]byte, 100)
	must(t, c.read(got, size-100))
	if !bytes.Equal(got, want) || s.InFlight() != 0 {
		t.Fatalf("a refused request changed the disk, or is still in flight: %d", s.InFlight())
	}
	big := make([]byte, MaxRequestBytes)
	must(t, c.write(big, 0))
	must(t, c.read(big, 4096))
}

func TestBrokenStreamEndsTheConnectionOnly(t *testing.T) {
	s, _, path := serve(t, zeroBase{blocks: 4})
	good := enter(t, path, "disk0")
	for name, p := range map[string][]byte{
		"no magic":    make([]byte, 28),
		"half a head": {0x25, 0x60, 0x95, 0x13, 0},
		"half a write": append([]byte{0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
			0, 0, 16, 0}, 1, 2, 3),
	} {
		bad := enter(t, path, "disk0")
		_, err := bad.conn.Write(p)
		must(t, err)
		must(t, bad.conn.(*net.UnixConn).CloseWrite())
		done := make(chan error, 1)
		bad.mu.Lock()
		if bad.dead == nil {
			bad.waiting[0] = &pending{done: done}
		} else {
			done <- bad.dead
		}
		bad.mu.Unlock()
		if err := <-done; err == nil {
			t.Errorf("%s: the connection is still there", name)
		}
	}
	must(t, good.read(make([]byte, 16), 0))
	if s.InFlight() != 0 {
		t.Fatalf("%d requests in flight of connections that have ended", s.InFlight())
	}
}

func TestSlowRequestDelaysNobodyElse(t *testing.T) {
	entered, goOn := make(chan struct{}, 8), make(chan struct{})
	base := zeroBase{16, func(ctx context.Context, slot uint64) error {
		if slot == 0 {
			entered <- struct{}{}
			<-goOn
		}
		return nil
	}}
	s, _, path := serve(t, base)
	c := enter(t, path, "disk0")
	slow := []chan error{
		c.send(0, 0, 0, 3*block, make([]byte, 3*block)),
		c.send(1, 0, 5, 3, []byte{1, 2, 3}),
	}
	<-entered
	<-entered
	must(t, c.flush())
	must(t, c.write(bytes.Repeat([]byte{1}, 2*block), 4*block))
	must(t, c.read(make([]byte, 8*block), 4*block))
	must(t, c.zeroes(block, 10*block))
	if s.InFlight() != 2 {
		t.Fatalf("%d requests in flight, want the 2 slow ones", s.InFlight())
	}
	close(goOn)
	for _, w := range slow {
		must(t, <-w)
	}
	if s.InFlight() != 0 {
		t.Fatalf("%d requests in flight after the last answer", s.InFlight())
	}
}

func TestBaseErrorIsAnIOError(t *testing.T) {
	fail := true
	base := zeroBase{16, func(context.Context, uint64) error {
		if fail {
			return errors.New("pack 7 is gone")
		}
		return nil
	}}
	_, _, path := serve(t, base)
	c := enter(t, path, "disk0")
	if err := c.read(make([]byte, block), 0); err != errnoError(5) {
		t.Fatalf("%v, want EIO", err)
	}
	fail = false
	must(t, c.read(make([]byte, block), 0))
}

func TestFloodIsBounded(t *testing.T) {
	goOn := make(chan struct{})
	base := zeroBase{1 << 16, func(context.Context, uint64) error { <-goOn; return nil }}
	s, _, path := serve(t, base)
	c := enter(t, path, "disk0")
	var answers []chan error
	for range 3 * maxConnRequests {
		answers = append(answers, c.send(0, 0, 0, block, make([]byte, block)))
	}
	if n := s.InFlight(); n > maxConnRequests+1 {
		t.Fatalf("%d requests in flight, limit %d and the one being read", n, maxConnRequests)
	}
	must(t, enter(t, path, "disk0").flush()) // another connection isn't held up
	close(goOn)
	for _, a := range answers {
		must(t, <-a)
	}
}

func TestLateBinding(t *testing.T) {
	s, o, path := serve(t, zeroBase{blocks: 4})
	s.SetExport("disk0", nil)
	c := dial(t, path)
	c.greet(3)
	c.option(7, infoData("disk0"))
	if kind, why := c.optionReply(7); kind != 1<<31|6 || len(why) == 0 {
		t.Fatalf("GO before the export is bound: %#x %q", kind, why)
	}
	s.SetExport("disk0", o) // the same connection may ask again
	c.option(7, infoData("disk0"))
	for kind := uint32(3); kind != 1; {
		if kind, _ = c.optionReply(7); kind != 1 && kind != 3 {
			t.Fatalf("GO after the export is bound: %#x", kind)
		}
	}
	go c.receive()
	must(t, c.write([]byte{1}, 0))
	s.SetExport("disk0", nil)
	must(t, c.read(make([]byte, 1), 0)) // who has it keeps it
}

func TestOptions(t *testing.T) {
	_, _, path := serve(t, zeroBase{blocks: 4})
	c := dial(t, path)
	c.greet(3)
	for _, unsupported := range []uint32{4, 5, 8, 9, 10, 11, 12345, math.MaxUint32} { // TLS, structured replies, contexts …
		c.option(unsupported, []byte("whatever"))
		if kind, _ := c.optionReply(unsupported); kind != 1<<31|1 {
			t.Errorf("option %d: %#x, want ERR_UNSUP", unsupported, kind)
		}
	}
	for _, bad := range [][]byte{nil, {0, 0, 0, 9, 0, 0}, {255, 255, 255, 255, 0, 0}, {0, 0, 0, 0, 0, 1}, append(infoData("disk0"), 1)} {
		c.option(7, bad)
		if kind, _ := c.optionReply(7); kind != 1<<31|3 {
			t.Errorf("GO with data %x: %#x, want ERR_INVALID", bad, kind)
		}
	}
	c.option(3, nil)
	if kind, data := c.optionReply(3); kind != 2 || string(data) != "\x00\x00\x00\x05disk0" {
		t.Errorf("LIST: %#x %q", kind, data)
	}
	if kind, _ := c.optionReply(3); kind != 1 {
		t.Errorf("LIST ends with %#x", kind)
	}
	c.option(6, infoData("disk0", 3, 1))
	var kinds []uint16
	for {
		kind, data := c.optionReply(6)
		if kind == 1 {
			break
		}
		kinds = append(kinds, be.Uint16(data))
		if be.Uint16(data) == 3 && (be.Uint32(data[2:]) != 1 || be.Uint32(data[6:]) != block || be.Uint32(data[10:]) != 32<<20) {
			t.Errorf("block sizes %x", data)
		}
	}
	if len(kinds) != 2 {
		t.Errorf("INFO gave %v, want export and block size", kinds)
	}
	c.option(2, nil)
	if kind, _ := c.optionReply(2); kind != 1 {
		t.Errorf("ABORT: %#x", kind)
	}
	if _, err := c.conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after ABORT: %v", err)
	}
}

func TestExportName(t *testing.T) {
	_, _, path := serve(t, zeroBase{blocks: 4})
	for flags, want := range map[uint32]int{1: 134, 3: 10} {
		c := dial(t, path)
		c.greet(flags)
		c.option(1, []byte("disk0"))
		p := make([]byte, want)
		_, err := io.ReadFull(c.conn, p)
		must(t, err)
		if be.Uint64(p) != 4*block {
			t.Fatalf("size %d", be.Uint64(p))
		}
		go c.receive()
		must(t, c.read(make([]byte, 10), 0))
	}
	c := dial(t, path)
	c.greet(1)
	c.option(1, []byte("nothing"))
	if _, err := c.conn.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("EXPORT_NAME of nothing: %v", err)
	}
}

func TestEndlessHandshakeEnds(t *testing.T) {
	_, _, path := serve(t, zeroBase{blocks: 4})
	for name, talk := range map[string]func(c *client){
		"too many options": func(c *client) {
			for range maxOptions {
				c.option(8, nil)
				c.optionReply(8)
			}
		},
		"a huge option":     func(c *client) { c.option(7, make([]byte, maxOptionBytes+1)) },
		"a huge length":     func(c *client) { _, _ = c.conn.Write([]byte("IHAVEOPT\x00\x00\x00\x07\xff\xff\xff\xff")) },
		"no magic":          func(c *client) { _, _ = c.conn.Write(make([]byte, 16)) },
		"half, then hangup": func(c *client) { _, _ = c.conn.Write(make([]byte, 3)); _ = c.conn.(*net.UnixConn).CloseWrite() },
	} {
		c := dial(t, path)
		c.greet(3)
		talk(c)
		_ = c.conn.SetReadDeadline(time.Now().Add(handshakeDeadline / 2))
		if _, err := c.conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := dial(t, path)
	c.greet(4)
	if _, err := c.conn.Read(make([]byte, 1)); err == nil {
		t.Error("unknown client flags were accepted")
	}
}

func TestCloseEndsRequestsInFlight(t *testing.T) {
	entered := make(chan struct{})
	base := zeroBase{16, func(ctx context.Context, _ uint64) error { close(entered); <-ctx.Done(); return ctx.Err() }}
	s, _, path := serve(t, base)
	c := enter(t, path, "disk0")
	a := c.send(0, 0, 0, block, make([]byte, block))
	<-entered
	must(t, s.Close())
	must(t, s.Close())
	if err := <-a; err == nil || s.InFlight() != 0 {
		t.Fatalf("after Close: %v, %d in flight", err, s.InFlight())
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the socket is still there")
	}
}

func TestSocketOfADeadServerIsTakenOver(t *testing.T) {
	_, _, path := serve(t, zeroBase{blocks: 4})
	if _, err := Listen(path); err == nil {
		t.Fatal("the socket of a living server was taken")
	}
	dead := filepath.Join(filepath.Dir(path), "d")
	l, err := net.Listen("unix", dead)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
	s, err := Listen(dead)
	must(t, err)
	must(t, s.Close())
}

// Several connections write stamps under load. Again and again they are drained, as a machine's stop does it, the disk
// is cut, and they go on while the delta is read: it must hold exactly what had been answered.
func TestCutsUnderLoadFromSeveralConnections(t *testing.T) {
	const conns, rounds, writes, regionBlocks = 4, 20, 60, 32
	s, o, path := serve(t, zeroBase{blocks: conns * regionBlocks})
	disk := make([]byte, conns*regionBlocks*block) // what has been answered
	var cs []*client
	for range conns {
		cs = append(cs, enter(t, path, "disk0"))
	}
	committed := make([]byte, len(disk))
	for round := range rounds {
		var wg sync.WaitGroup
		for i, c := range cs {
			mine := disk[i*regionBlocks*block : (i+1)*regionBlocks*block]
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				var answers []chan error
				for n := range writes { // distinct places, so that all may be in flight at once
					off := n*2048 + rng.IntN(1024)
					stamp := mine[off : off+512]
					binary.LittleEndian.PutUint64(stamp[rng.IntN(500):], rng.Uint64())
					answers = append(answers, c.send(1, 0, uint64(i*regionBlocks*block+off), 512, stamp))
				}
				for _, a := range answers {
					if err := <-a; err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait() // drained
		if s.InFlight() != 0 {
			t.Fatalf("%d requests in flight after the last answer", s.InFlight())
		}
		d, err := o.Cut(t.Context())
		must(t, err)
		atCut := bytes.Clone(disk)
		var busy sync.WaitGroup
		busy.Go(func() { // the guest goes on
			over := bytes.Repeat([]byte{byte(round + 1)}, 3000)
			for off := 0; off+3000 <= len(disk); off += 7000 {
				copy(disk[off:], over)
				if err := cs[0].write(over, uint64(off)); err != nil {
					t.Error(err)
				}
			}
		})
		for slot := range d.Slots() {
			must(t, d.ReadSlot(t.Context(), slot, committed[slot*block:(slot+1)*block]))
		}
		busy.Wait()
		if !bytes.Equal(committed, atCut) {
			t.Fatalf("round %d: base and delta are not the disk at the cut", round)
		}
		d.Commit(bytesBase(bytes.Clone(committed)))
	}
}

// bytesBase is a base in memory.
type bytesBase []byte

func (b bytesBase) Slots() uint64 { return uint64(len(b) / block) }
func (b bytesBase) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, b[slot*block:(slot+1)*block])
	return nil
}
func (b bytesBase) ReadSlots(_ context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, slot := range slots {
		if err := each(slot, b[slot*block:(slot+1)*block]); err != nil {
			return err
		}
	}
	return nil
}
