package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/s3"
)

func put(t *testing.T, b bucket.Bucket, key string, data []byte, c bucket.Condition) (bucket.Version, error) {
	t.Helper()
	return b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), c)
}

func mustPut(t *testing.T, b bucket.Bucket, key string, data []byte) {
	t.Helper()
	if _, err := put(t, b, key, data, bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// behind opens a bucket behind a proxy with a plan.
func behind(t *testing.T, plan buckettest.Plan) (*s3.Bucket, *buckettest.Proxy) {
	t.Helper()
	c := config(t, server, "")
	p := buckettest.ProxyFor(t, server.Endpoint, plan)
	c.Endpoint = p.Endpoint
	return open(t, c), p
}

func TestPassingFaultsAreOvercome(t *testing.T) {
	if server == nil {
		t.Skip("there is no S3 server")
	}
	buckettest.RunFaults(t, server.Endpoint, func(t *testing.T, p *buckettest.Proxy) bucket.Bucket {
		return open(t, config(t, server, p.Endpoint))
	})
}

func TestLostAnswerToAConditionalPutIsSuccess(t *testing.T) {
	for _, kind := range []buckettest.Kind{buckettest.ResetAfter, buckettest.Error500After} {
		b, p := behind(t, buckettest.Plan{Faults: []buckettest.Fault{{Kind: kind, Verb: "PUT"}}})
		if _, err := put(t, b, "k", buckettest.Bytes(1, 3<<20), bucket.Condition{Absent: true}); err != nil {
			t.Fatal(err)
		}
		if p.Faults(kind) != 1 || p.Requests("PUT") != 1 {
			t.Errorf("%d faults, %d puts: the object is there after the first", p.Faults(kind), p.Requests("PUT"))
		}
	}
}

func TestPersistentDamageIsReported(t *testing.T) {
	b, p := behind(t, buckettest.Plan{})
	mustPut(t, b, "k", buckettest.Bytes(1, 10_000))
	p.SetPlan(buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.WrongBytes, Count: -1}}})
	if _, _, err := b.Get(t.Context(), "k", 1<<20); !errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("get: %v", err)
	}
	if _, err := put(t, b, "other", buckettest.Bytes(2, 10_000), bucket.Condition{}); !errors.Is(err, bucket.ErrIntegrity) {
		t.Errorf("put: %v", err)
	}
	p.SetPlan(buckettest.Plan{})
	if _, err := b.Stat(t.Context(), "other"); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("a damaged put is there: %v", err)
	}
}

func TestOutageIsUnavailableAfterBoundedTries(t *testing.T) {
	b, p := behind(t, buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.SlowDown, Count: -1}}})
	before := b.Stats()
	_, _, err := b.Get(t.Context(), "k", 1)
	if !errors.Is(err, bucket.ErrUnavailable) || !strings.Contains(err.Error(), "8 tries") {
		t.Errorf("get: %v", err)
	}
	s := b.Stats().Sub(before)
	if p.Requests("GET") != 8 || s.Gets != 8 || s.Retries != 7 {
		t.Errorf("%d requests came; %v", p.Requests("GET"), s)
	}
	p.Close()
	if err := b.Delete(t.Context(), "k"); !errors.Is(err, bucket.ErrUnavailable) {
		t.Errorf("delete without a server: %v", err)
	}
}

func TestStalledRequestIsGivenUpAndTriedAgain(t *testing.T) {
	c := config(t, server, "")
	p := buckettest.ProxyFor(t, server.Endpoint, buckettest.Plan{})
	c.Endpoint, c.Stall = p.Endpoint, 400*time.Millisecond
	b := open(t, c)
	want := buckettest.Bytes(1, 100_000)
	mustPut(t, b, "k", want)
	for _, f := range []buckettest.Fault{
		{Kind: buckettest.SlowBody, Verb: "GET", Delay: time.Hour},
		{Kind: buckettest.Latency, Verb: "GET", Delay: time.Hour},
	} {
		p.SetPlan(buckettest.Plan{Faults: []buckettest.Fault{f}})
		if got, _, err := b.Get(t.Context(), "k", 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", f.Kind, err)
		}
	}
}

func TestCancelledCallReturnsAtOnce(t *testing.T) {
	b, _ := behind(t, buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.Latency, Delay: time.Hour, Count: -1}}})
	for name, call := range map[string]func(context.Context) error{
		"get":    func(ctx context.Context) error { _, _, err := b.Get(ctx, "k", 1); return err },
		"range":  func(ctx context.Context) error { return b.GetRange(ctx, "k", make([]byte, 1), 0) },
		"stat":   func(ctx context.Context) error { _, err := b.Stat(ctx, "k"); return err },
		"delete": func(ctx context.Context) error { return b.Delete(ctx, "k") },
		"put": func(ctx context.Context) error {
			_, err := b.Put(ctx, "k", strings.NewReader("x"), 1, bucket.Condition{})
			return err
		},
		"list": func(ctx context.Context) error {
			for _, err := range b.List(ctx, "") {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// slowSource gives up its put when it is read a second time, and takes its time over that read: the put must wait for it.
type slowSource struct {
	io.ReaderAt
	t      *testing.T
	giveUp func()
	reads  atomic.Int64 // of its beginning
	over   chan struct{}
}

func (s *slowSource) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 && s.reads.Add(1) == 2 {
		s.giveUp()
		select {
		case <-s.over:
			s.t.Error("the put has returned while its source was read")
		case <-time.After(50 * time.Millisecond):
		}
	}
	select {
	case <-s.over:
		s.t.Error("the source is read after its put has returned")
	default:
	}
	return s.ReaderAt.ReadAt(p, off)
}

func TestSourceIsLeftAloneAfterPut(t *testing.T) {
	// The server takes the connection and reads nothing until the put has ended: the client has most of it still to send.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := open(t, s3.Config{Endpoint: "http://" + l.Addr().String(), Bucket: "bucket", AccessKey: "a", SecretKey: "s", Tries: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const size = 16 << 20
	src := &slowSource{ReaderAt: bytes.NewReader(make([]byte, size)), t: t, giveUp: cancel, over: make(chan struct{})}
	_, err = b.Put(ctx, "k", src, size, bucket.Condition{})
	close(src.over)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.Copy(io.Discard, conn) // until the client has closed it
}

func TestBandwidthLimitHolds(t *testing.T) {
	c := config(t, server, "")
	c.UploadBytesPerSecond, c.DownloadBytesPerSecond = 1<<20, 2<<20
	b := open(t, c)
	data := buckettest.Bytes(1, 300_000)
	start := time.Now()
	mustPut(t, b, "k", data)
	if took := time.Since(start); took < 200*time.Millisecond { // 300,000 − a burst of 32,768 at 1 MiB/s: 255 ms
		t.Errorf("300,000 bytes at 1 MiB/s were sent in %v", took)
	}
	start = time.Now()
	if _, _, err := b.Get(t.Context(), "k", 1<<20); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("300,000 bytes at 2 MiB/s came in %v", took)
	}
	b.SetLimits(0, 0)
	if s := b.Stats(); s.SentBytes != 300_000 || s.ReceivedBytes < 300_000 || s.Puts != 1 || s.Gets != 1 {
		t.Errorf("counted: %v", s)
	}
}

func TestListGoesOnOverManyPages(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 1,100 objects")
	}
	b, p := behind(t, buckettest.Plan{})
	const objects = 1100
	errs := make(chan error, 16)
	for worker := range 16 {
		go func() {
			for i := worker; i < objects; i += 16 {
				if _, err := b.Put(t.Context(), fmt.Sprintf("k/%04d", i), bytes.NewReader(nil), 0, bucket.Condition{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 16 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	p.SetPlan(buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.TruncatedBody, Verb: "LIST", From: 2, Count: 2}}})
	n, last := 0, ""
	for info, err := range b.List(t.Context(), "k/") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Key <= last {
			t.Fatalf("%s comes after %s", info.Key, last)
		}
		n, last = n+1, info.Key
	}
	if n != objects {
		t.Errorf("%d of %d objects are listed", n, objects)
	}
	if p.Faults(buckettest.TruncatedBody) != 2 {
		t.Errorf("%d pages were truncated", p.Faults(buckettest.TruncatedBody))
	}
}
