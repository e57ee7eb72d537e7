package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/time/rate"

	"flash/cas/bucket"
)

// transport is what every request of a bucket goes through: it counts, slows down to the limits, and gives up what stalls.
type transport struct {
	base     *http.Transport
	stall    time.Duration
	up, down *rate.Limiter

	gets, heads, puts, deletes, lists, others, retries atomic.Int64
	sent, received                                     atomic.Int64
	clock                                              atomic.Pointer[time.Duration] // the server's before ours
}

var (
	errStalled = errors.New("the server makes no progress")
	errNotS3   = errors.New("what answers there is a web page, not S3")
)

const (
	pieceBytes    = 32 << 10 // what a limiter lets pass at once
	progressBytes = 16 << 10 // what must come in during Config.Stall
)

func newTransport(c Config) *transport {
	t := &transport{
		stall: c.Stall,
		base: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 0, // the watch sees to it, and knows how long the body takes to send
			MaxIdleConnsPerHost:   64,
			IdleConnTimeout:       time.Minute,
			WriteBufferSize:       64 << 10,
			ReadBufferSize:        64 << 10,
			DisableCompression:    true, // objects are what they are
		},
		up: rate.NewLimiter(rate.Inf, 0), down: rate.NewLimiter(rate.Inf, 0),
	}
	t.setLimits(c.UploadBytesPerSecond, c.DownloadBytesPerSecond)
	return t
}

func (t *transport) setLimits(up, down int64) {
	set := func(l *rate.Limiter, bytesPerSecond int64) {
		if bytesPerSecond <= 0 {
			l.SetLimit(rate.Inf)
			return
		}
		l.SetBurst(pieceBytes)
		l.SetLimit(rate.Limit(bytesPerSecond))
	}
	set(t.up, up)
	set(t.down, down)
}

// RoundTrip sends one request. The answer's body must be closed, as always.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.count(req)
	ctx, cancel := context.WithCancelCause(req.Context())
	w := newWatch(t.stall, func() { cancel(errStalled) })
	end := func() {
		w.stop()
		cancel(nil)
	}
	out := req.WithContext(ctx)
	if req.Body != nil {
		out.Body, out.GetBody = &sending{t: t, ctx: ctx, body: req.Body, watch: w}, nil
	}
	sent := time.Now()
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		err = stallOr(ctx, err)
		end()
		return nil, fails(req.Context(), err)
	}
	w.progress()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := date.Sub(sent.Add(time.Since(sent) / 2))
		t.clock.Store(&skew)
	}
	resp.Body = &receiving{t: t, ctx: ctx, body: resp.Body, watch: w, end: end}
	if mayPass(resp.StatusCode) {
		defer resp.Body.Close()
		return nil, fails(req.Context(), answerOf(resp))
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		resp.Body.Close()
		return nil, fails(req.Context(), fmt.Errorf("%w (%s)", errNotS3, resp.Status))
	}
	return resp, nil
}

// mayPass: what the library would wait after.
func mayPass(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status == 499
}

// answerOf reads a refusal as the library would.
func answerOf(resp *http.Response) minio.ErrorResponse {
	a := minio.ErrorResponse{}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if xml.Unmarshal(said, &a) != nil || a.Code == "" {
		a = minio.ErrorResponse{Code: resp.Status, Message: resp.Status}
	}
	a.StatusCode = resp.StatusCode
	return a
}

// stallOr names the watch as the reason of an error where it was.
func stallOr(ctx context.Context, err error) error {
	if err != io.EOF && context.Cause(ctx) == errStalled {
		return errStalled
	}
	return err
}

func (t *transport) count(req *http.Request) {
	switch query := req.URL.Query(); {
	case query.Has("list-type"):
		t.lists.Add(1)
	case len(query) > 0 && !query.Has("x-id"):
		t.others.Add(1)
	case req.Method == http.MethodGet:
		t.gets.Add(1)
	case req.Method == http.MethodHead:
		t.heads.Add(1)
	case req.Method == http.MethodPut:
		t.puts.Add(1)
	case req.Method == http.MethodDelete:
		t.deletes.Add(1)
	default:
		t.others.Add(1)
	}
}

func (t *transport) stats() bucket.Stats {
	return bucket.Stats{
		Gets: t.gets.Load(), Heads: t.heads.Load(), Puts: t.puts.Load(), Deletes: t.deletes.Load(), Lists: t.lists.Load(),
		Others: t.others.Load(), Retries: t.retries.Load(), SentBytes: t.sent.Load(), ReceivedBytes: t.received.Load(),
	}
}

func (t *transport) skew() (time.Duration, bool) {
	if skew := t.clock.Load(); skew != nil {
		return *skew, true
	}
	return 0, false
}

// watch calls expire when nobody has told it of progress for a while.
type watch struct {
	after time.Duration
	timer *time.Timer
	ended atomic.Bool
}

func newWatch(after time.Duration, expire func()) *watch {
	return &watch{after: after, timer: time.AfterFunc(after, expire)}
}

func (w *watch) progress() {
	if !w.ended.Load() {
		w.timer.Reset(w.after)
	}
}

func (w *watch) pause() { w.timer.Stop() }

func (w *watch) stop() {
	w.ended.Store(true)
	w.timer.Stop()
}

// sending is a request's body on its way to the connection.
type sending struct {
	t     *transport
	ctx   context.Context
	body  io.ReadCloser
	watch *watch
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.body.Read(p[:min(len(p), pieceBytes)])
	s.t.sent.Add(int64(n))
	s.watch.pause() // our own slowness is no stall
	if waitErr := s.t.up.WaitN(s.ctx, n); waitErr != nil {
		return 0, waitErr
	}
	s.watch.progress()
	return n, err
}

func (s *sending) Close() error { return s.body.Close() }

// receiving is an answer's body.
type receiving struct {
	t     *transport
	ctx   context.Context
	body  io.ReadCloser
	watch *watch
	since int // bytes since the last progress
	end   func()
}

func (r *receiving) Read(p []byte) (int, error) {
	n, err := r.body.Read(p[:min(len(p), pieceBytes)])
	r.t.received.Add(int64(n))
	if r.since += n; r.since >= progressBytes {
		r.since = 0
		r.watch.pause()
		defer r.watch.progress()
	}
	if waitErr := r.t.down.WaitN(r.ctx, n); waitErr != nil && err == nil {
		err = waitErr
	}
	if err != nil {
		err = stallOr(r.ctx, err)
	}
	return n, err
}

func (r *receiving) Close() error {
	r.end()
	return r.body.Close()
}
