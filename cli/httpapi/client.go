package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"flash/vmm/host"
)

const (
	dialTimeout    = 5 * time.Second
	healthTimeout  = 10 * time.Second
	maxAnswerBytes = 256 << 20 // a history or ledger of a long life; more is not one
)

// Client is a host.API that asks a Server. Safe for concurrent use.
type Client struct {
	http  *http.Client
	where string // for messages
	token string
}

var _ host.API = (*Client)(nil)

// NewClient makes a client of the daemon behind a unix socket. It dials when it is first used.
func NewClient(socket string) *Client {
	return newClient(socket, "", func(ctx context.Context, d *net.Dialer) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	})
}

// NewTCPClient makes a client of a daemon that listens at addr and wants token.
func NewTCPClient(addr, token string) *Client {
	return newClient(addr, token, func(ctx context.Context, d *net.Dialer) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", addr)
	})
}

func newClient(where, token string, dial func(context.Context, *net.Dialer) (net.Conn, error)) *Client {
	d := &net.Dialer{Timeout: dialTimeout}
	return &Client{where: where, token: token, http: &http.Client{
		Transport: &http.Transport{
			DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, d) },
			MaxIdleConns:          4,
			IdleConnTimeout:       idleTimeout / 2, // ours close first: no request meets a closing connection
			ExpectContinueTimeout: bodyTimeout,
			DisableCompression:    true,
			WriteBufferSize:       maxDataBytes,
			ReadBufferSize:        maxDataBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close drops idle connections. Calls under way go on.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Health asks whether the daemon answers, and doesn't wait long for one that hangs.
func (c *Client) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, healthTimeout, host.Errorf(host.CodeDeadline, "look at its log flash.log, or end it and try again",
		"the daemon at %s is there but hasn't answered for %s", c.where, healthTimeout))
	defer cancel()
	return c.call(ctx, "GET", "/v1/host/health", nil, nil)
}

// Shutdown asks the daemon to end. It returns when the daemon has agreed to, not when it has ended.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/host/shutdown", nil, nil)
}

// Raw is one request with a JSON body, or none for nil; it gives the answer's status and body, failures included.
func (c *Client) Raw(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	resp, err := c.send(ctx, method, path, r, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return resp.StatusCode, answer, c.broken(ctx, err)
}

// vmURL is the path of a VM, or of what belongs to it.
func vmURL(id string, parts ...string) (string, error) {
	for _, p := range append([]string{id}, parts...) {
		if p == "" || p == "." || p == ".." { // these can't stand in a path
			return "", host.Errorf(host.CodeInvalid, "give a name, as flash ps shows it", "%q is no name", p)
		}
	}
	var b strings.Builder
	b.WriteString("/v1/host/flashvms/" + url.PathEscape(id))
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String(), nil
}

// call sends in as JSON, or nothing for nil, and decodes the answer into out, or drops it for nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		p, err := json.Marshal(in)
		if err != nil {
			return host.Errorf(host.CodeInternal, "report this", "encoding the request: %w", err)
		}
		body = bytes.NewReader(p)
	}
	resp, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := c.check(ctx, resp); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(out); err != nil {
		return c.broken(ctx, err)
	}
	return nil
}

// callVM is call for a VM's path.
func (c *Client) callVM(ctx context.Context, method, id string, parts []string, query url.Values, in, out any) error {
	path, err := vmURL(id, parts...)
	if err != nil {
		return err
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, method, path, in, out)
}

func (c *Client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://flash"+path, body)
	if err != nil {
		return nil, host.Errorf(host.CodeInvalid, "check the names given", "%s %s: %w", method, path, err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	return resp, nil
}

// broken tells a failure of the conversation itself. nil for nil.
func (c *Client) broken(ctx context.Context, err error) error {
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ErrorOf(context.Cause(ctx))
	case errors.As(err, &dial) && dial.Op == "dial":
		return host.Errorf(host.CodeDaemon, "start it with flash serve", "no daemon answers at %s: %w", c.where, dial.Err)
	}
	var u *url.Error
	if errors.As(err, &u) { // "Post \"http://flash/…\"" says nothing to anybody
		err = u.Err
	}
	gone := host.Errorf(host.CodeDaemon, "its log flash.log may say why; a new one starts with the next command", "the daemon at %s went away: %w", c.where, err)
	gone.Err = errors.Join(ErrWentAway, err)
	return gone
}

// ErrWentAway: the daemon died over a request, and nobody knows how much of it was done.
var ErrWentAway = errors.New("the daemon went away")

// check turns a failure's answer into its error.
func (c *Client) check(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes))
	if err != nil {
		return c.broken(ctx, err)
	}
	return decodeError(resp.StatusCode, body)
}
