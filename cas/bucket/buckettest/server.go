package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is an S3 server on loopback that runs as long as this process at most.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	Bucket    string // one that is there already
	AccessKey string
	SecretKey string
	Dir       string // a folder in it is a bucket, a file below that an object

	cancel context.CancelFunc
	ended  chan struct{}
	err    error // why it ended, once it has
	said   tail
}

// Start starts versitygw over a folder, which is made if absent, until ctx ends or Stop is called. It is installed first if
// need be.
func Start(ctx context.Context, dir string) (*Server, error) {
	program, err := VersityGW.Install(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, dir, func(s *Server, address string) *exec.Cmd {
		cmd := exec.Command(program, "--port", address, "--keep-alive", "--quiet", "posix", s.Dir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		return cmd
	})
}

// StartRclone starts the second opinion, as Start does.
func StartRclone(ctx context.Context, dir string) (*Server, error) {
	program, err := Rclone.Install(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, dir, func(s *Server, address string) *exec.Cmd {
		cmd := exec.Command(program, "serve", "s3", "--addr", address, "--vfs-cache-mode", "off", s.Dir)
		cmd.Env = append(os.Environ(), "RCLONE_CONFIG="+os.DevNull, "RCLONE_AUTH_KEY="+s.AccessKey+","+s.SecretKey)
		return cmd
	})
}

func start(ctx context.Context, dir string, command func(*Server, string) *exec.Cmd) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{Bucket: "flash", AccessKey: "flash-" + strings.ToLower(rand.Text()[:8]), SecretKey: rand.Text(), Dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, s.Bucket), 0o755); err != nil {
		return nil, err
	}
	const tries = 5 // someone else may take the port between our asking for it and the server's
	for try := 1; ; try++ {
		err := s.run(ctx, command)
		if err == nil {
			return s, nil
		}
		if try == tries || ctx.Err() != nil {
			return nil, fmt.Errorf("start an S3 server: %w", err)
		}
	}
}

// run starts the process on a free port, and returns when it answers.
func (s *Server) run(ctx context.Context, command func(*Server, string) *exec.Cmd) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := free.Addr().String()
	free.Close()
	cmd := command(s, address)
	dieWithUs(cmd)
	cmd.Stdout, cmd.Stderr = &s.said, &s.said
	ctx, s.cancel = context.WithCancel(ctx)
	s.ended = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		// A child that dies with its parent does so with the thread that started it: this one, which is kept until then.
		runtime.LockOSThread()
		defer close(s.ended)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		s.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return err
	}
	go func() {
		select {
		case <-ctx.Done():
			cmd.Process.Kill() // by its handle: never another's id
		case <-s.ended:
		}
	}()
	s.Endpoint = "http://" + address
	if err := s.waitForAnswer(ctx); err != nil {
		s.Stop()
		return err
	}
	return nil
}

func (s *Server) waitForAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			return nil
		}
		select {
		case <-poll.C:
		case <-s.ended:
			return fmt.Errorf("it ended: %w: %s", errors.Join(errEnded, s.err), s.said.String())
		case <-ctx.Done():
			return fmt.Errorf("it doesn't answer: %w: %s", ctx.Err(), s.said.String())
		}
	}
}

// Stop kills the server and waits for its end. Its folder stays, and a second call is harmless.
func (s *Server) Stop() {
	s.cancel()
	<-s.ended
}

// Env is the environment in which flash's commands find the server.
func (s *Server) Env() []string {
	return []string{"AWS_ENDPOINT_URL_S3=" + s.Endpoint, "AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=us-east-1"}
}

// ServerFor starts a server for a test, and ends it with the test. Where it can't be installed the test is skipped, unless
// everything is required.
func ServerFor(t testing.TB) *Server {
	t.Helper()
	return serverFor(t, Start)
}

// SecondServerFor is ServerFor with a server of different code. It is only asked for where FLASH_REQUIRE has "meta".
func SecondServerFor(t testing.TB) *Server {
	t.Helper()
	if !strings.Contains(os.Getenv("FLASH_REQUIRE"), "meta") {
		t.Skip("the second S3 server is only asked by make meta")
	}
	return serverFor(t, StartRclone)
}

func serverFor(t testing.TB, start func(context.Context, string) (*Server, error)) *Server {
	t.Helper()
	s, err := start(context.Background(), t.TempDir())
	if err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") || strings.Contains(os.Getenv("FLASH_REQUIRE"), "meta") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(s.Stop)
	return s
}

var errEnded = errors.New("the process is gone")

// tail keeps the end of what a process says.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if over := len(t.end) - tailBytes; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.end))
}
