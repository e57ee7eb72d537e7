package buckettest_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flash/cas/bucket/buckettest"
)

// TestS3ServerIsInstalled is what `make deps` runs: the one moment that may need the network.
func TestS3ServerIsInstalled(t *testing.T) {
	path, err := buckettest.VersityGW.Install(t.Context())
	if err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		t.Fatal(path, err)
	}
}

func TestSecondInstallIsNone(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", "")
	tool := buckettest.Tool{Package: "example.org/tool", Version: "v1"}
	path, err := tool.Path()
	if err != nil || !strings.HasPrefix(path, cache) {
		t.Skip("the cache folder is elsewhere on this system")
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "building-killed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := tool.Install(t.Context()); err == nil {
		t.Fatal("installed without go")
	}
	if err := os.WriteFile(path, []byte("here"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := tool.Install(t.Context()); err != nil || got != path {
		t.Fatalf("%s, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "building-*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}

func TestServerEndsWithItsContextAndWithStop(t *testing.T) {
	reachable := func(s *buckettest.Server) bool {
		resp, err := http.Get(s.Endpoint)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}
	first := buckettest.ServerFor(t) // skips where there is none
	if !reachable(first) {
		t.Fatal("it doesn't answer")
	}
	first.Stop()
	first.Stop()
	if reachable(first) {
		t.Error("it answers after Stop")
	}
	ctx, cancel := context.WithCancel(t.Context())
	second, err := buckettest.Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	second.Stop()
	if reachable(second) {
		t.Error("it answers after its context's end")
	}
}

func TestManyServersFindTheirPorts(t *testing.T) {
	buckettest.ServerFor(t)
	var wg sync.WaitGroup
	var servers [4]*buckettest.Server
	for i := range servers {
		dir := t.TempDir()
		wg.Go(func() {
			s, err := buckettest.Start(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, s := range servers {
		if s == nil {
			continue
		}
		defer s.Stop()
		if seen[s.Endpoint] {
			t.Errorf("two servers are at %s", s.Endpoint)
		}
		seen[s.Endpoint] = true
	}
}
