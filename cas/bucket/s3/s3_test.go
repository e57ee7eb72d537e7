package s3_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/s3"
)

// server is one for all tests here; each has its own prefix.
var server *buckettest.Server

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "flash-s3-")
	if err != nil {
		panic(err)
	}
	var startErr error
	server, startErr = buckettest.Start(context.Background(), dir)
	if startErr != nil && strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		panic(startErr)
	}
	code := m.Run()
	if server != nil {
		server.Stop()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

var prefixes atomic.Int64

// config reaches the server, at once and without patience, through an endpoint ("": its own).
func config(t testing.TB, s *buckettest.Server, endpoint string) s3.Config {
	t.Helper()
	if s == nil {
		t.Skip("there is no S3 server")
	}
	if endpoint == "" {
		endpoint = s.Endpoint
	}
	return s3.Config{
		Endpoint: endpoint, Bucket: s.Bucket, AccessKey: s.AccessKey, SecretKey: s3.Secret(s.SecretKey),
		Prefix:  fmt.Sprintf("test/%d", prefixes.Add(1)),
		BackOff: time.Millisecond, BackOffCap: 5 * time.Millisecond,
	}
}

func open(t testing.TB, c s3.Config) *s3.Bucket {
	t.Helper()
	b, err := s3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, config(t, server, "")) })
}

func TestConformanceOfAnotherServer(t *testing.T) {
	second := buckettest.SecondServerFor(t)
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, config(t, second, "")) })
}
