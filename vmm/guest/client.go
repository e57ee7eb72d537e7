package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// Client talks to one guest. Safe for concurrent use.
type Client struct {
	conn       net.Conn
	link       *link
	generation uint64
	nonce      string
	hello      chan ackBody  // answers to our HELLO
	closed     chan struct{} // after err is set
	ended      sync.WaitGroup
	quieting   chan struct{} // holds a token while nobody brings the channel to rest

	mu     sync.Mutex // guards the rest
	calls  map[uint32]*call
	lastID uint32
	quiet  *quiet // a Quiesce under way or in force
	err    error
}

// A HELLO is repeated, ever more rarely, until it is answered: a guest that was restored may have lost it.
const (
	helloFirst   = 50 * time.Millisecond
	helloLast    = time.Second
	connectLimit = 2 * time.Minute // when the caller gives none
)

// Connect sends HELLO with the generation until the agent acknowledges it, within ctx.
// The client owns conn from now on and closes it with Close; so does a failed Connect.
func Connect(ctx context.Context, conn net.Conn, generation uint64) (*Client, Info, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	var random [16 + 64]byte
	rand.Read(random[:])
	c := &Client{
		conn: conn, link: newLink(conn), generation: generation, nonce: hex.EncodeToString(random[:16]),
		hello: make(chan ackBody, 1), closed: make(chan struct{}), quieting: make(chan struct{}, 1), calls: map[uint32]*call{},
	}
	c.quieting <- struct{}{}
	c.ended.Add(2)
	go c.write()
	go c.read()
	ack, err := c.greet(ctx, random[16:])
	if err != nil {
		c.Close()
		return nil, Info{}, fmt.Errorf("greet the guest's agent: %w", err)
	}
	return c, ack.Info, nil
}

func (c *Client) greet(ctx context.Context, seed []byte) (ackBody, error) {
	body, err := encodeBody(helloBody{Protocol: Protocol, Nonce: c.nonce, Seed: seed})
	if err != nil {
		return ackBody{}, err
	}
	pause := helloFirst
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if c.link.idle() { // else the last one hasn't even left
			c.link.send(frame{Type: typeHello, Generation: c.generation, Body: body})
		}
		select {
		case ack := <-c.hello:
			return ack, refusal(ack)
		case <-c.closed:
			return ackBody{}, c.failure()
		case <-ctx.Done():
			return ackBody{}, fmt.Errorf("no answer: %w", context.Cause(ctx))
		case <-timer.C:
			pause = min(2*pause, helloLast)
			timer.Reset(pause)
		}
	}
}

func refusal(ack ackBody) error {
	switch {
	case ack.Code == CodeProtocol || ack.Protocol != Protocol:
		return ErrProtocol{Theirs: ack.Protocol, Ours: Protocol}
	case ack.Code != "":
		return &AgentError{Code: ack.Code, Message: ack.Message}
	}
	return nil
}

// Close ends the session and unblocks every call with ErrClosed. Execs in the guest go on.
func (c *Client) Close() error {
	c.fail(nil)
	c.ended.Wait()
	return nil
}

// Done is closed when the session is over.
func (c *Client) Done() <-chan struct{} { return c.closed }

// fail ends the session; cause nil: by our own will.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = ErrClosed
	if cause != nil {
		c.err = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	close(c.closed)
	c.link.close()
	c.conn.Close()
	for _, k := range c.calls {
		k.finish(nil, c.err)
	}
	c.calls = map[uint32]*call{}
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) write() {
	defer c.ended.Done()
	if err := c.link.run(); err != nil {
		c.fail(err)
	}
}

// read never waits for anything but the channel, or, at rest, for the release.
func (c *Client) read() {
	defer c.ended.Done()
	var d decoder
	for {
		n, err := c.conn.Read(d.space())
		d.filled(n)
		for f, ok := d.next(); ok; f, ok = d.next() {
			if f.Generation != c.generation {
				continue
			}
			if f.Type == typeHeld {
				if err := c.park(f.ID, &d); err != nil {
					c.fail(err)
					return
				}
				continue
			}
			c.take(f)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// take hands a frame to the call it belongs to. Frames of calls that have gone are dropped.
func (c *Client) take(f frame) {
	if f.Type == typeAck || f.Type == typeRefuse {
		if ack, err := decodeAck(f.Body); err == nil && ack.Nonce == c.nonce {
			select {
			case c.hello <- ack:
			default: // a repeated HELLO's
			}
		}
		return
	}
	c.mu.Lock()
	k := c.calls[f.ID]
	if f.Type == typeResponse {
		delete(c.calls, f.ID)
	}
	c.mu.Unlock()
	if k == nil {
		return
	}
	switch f.Type {
	case typeResponse:
		if f.Sub == outcomeDone {
			k.finish(append([]byte{}, f.Body...), nil)
			return
		}
		var e AgentError
		if err := json.Unmarshal(f.Body, &e); err != nil {
			k.finish(nil, fmt.Errorf("the guest's agent sent an error that can't be read: %w", err))
			return
		}
		k.finish(nil, &e)
	case typeData:
		off, ok := position(f.Body)
		if ok && (f.Sub == streamOut || f.Sub == streamErr) && k.from[f.Sub] != nil {
			if err := k.from[f.Sub].arrive(off, f.Body[positionBytes:]); err != nil {
				k.from[f.Sub].fail(err)
			}
		}
	case typeCredit:
		consumed, ok := position(f.Body)
		if !ok {
			return
		}
		if limit, ok := position(f.Body[positionBytes:]); ok && k.to != nil {
			k.to.credit(c.link, c.generation, k.id, consumed, limit)
		}
	}
}

// call is a request that waits for its response.
type call struct {
	id   uint32
	op   byte
	to   *outStream    // bytes for the guest
	from [3]*inStream  // bytes from the guest
	done chan struct{} // closed by finish

	once  sync.Once
	reply []byte
	err   error
}

func (k *call) finish(reply []byte, err error) {
	k.once.Do(func() {
		k.reply, k.err = reply, err
		close(k.done)
	})
}

// begin sends a request whose streams are already in k.
func (c *Client) begin(k *call, op byte, body any) error {
	p, err := encodeBody(body)
	if err != nil {
		return &AgentError{Code: CodeInvalid, Message: err.Error()}
	}
	k.op, k.done = op, make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.lastID++
	k.id = c.lastID
	c.calls[k.id] = k
	c.link.send(frame{Type: typeRequest, Sub: op, Generation: c.generation, ID: k.id, Body: p})
	return nil
}

// post sends a request whose answer nobody waits for.
func (c *Client) post(op byte, body any) {
	k := &call{}
	if c.begin(k, op, body) == nil {
		c.forget(k)
	}
}

func (c *Client) forget(k *call) {
	c.mu.Lock()
	delete(c.calls, k.id)
	c.mu.Unlock()
}

// cancel tells the guest that nobody waits for a call any more.
func (c *Client) cancel(k *call) {
	c.forget(k)
	c.link.send(frame{Type: typeCancel, Generation: c.generation, ID: k.id})
}

// do sends a request without streams and decodes its response; limit bounds the wait when ctx doesn't.
func (c *Client) do(ctx context.Context, limit time.Duration, what string, op byte, body, reply any) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	k := &call{}
	if err := c.begin(k, op, body); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		c.cancel(k)
		return fmt.Errorf("%s: no answer from the guest: %w", what, context.Cause(ctx))
	}
	if k.err == nil && reply != nil {
		k.err = json.Unmarshal(k.reply, reply)
	}
	if k.err != nil {
		return fmt.Errorf("%s: %w", what, k.err)
	}
	return nil
}
