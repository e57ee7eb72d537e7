package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"flash/cli/httpapi"
	"flash/store"
	"flash/vmm/host"
)

// drainTimeout is how long a daemon that ends lets requests go on.
const drainTimeout = 10 * time.Second

func (a *app) serveCmd() *cobra.Command {
	var listen, tokenFile string
	var stop bool
	var budgetGiB float64
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the daemon in the foreground",
		Long: `serve is the daemon: it has the home open, runs the machines and answers at its socket flash.sock. Every other command
starts one by itself when none answers; its log is flash.log there, and FLASH_LOG=debug makes it say more. SIGTERM, ^C or flash serve --stop end it in order.

TCP needs a bearer token. --token-file names a file that holds it; a file that isn't there is made with a new one.

Exit codes: 0 ended in order, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash serve --listen tcp:127.0.0.1:7070 --token-file /etc/flash.token",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", "", "also answer at tcp:HOST:PORT")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file of the token that TCP clients need")
	cmd.Flags().Float64Var(&budgetGiB, "store-gib", 0, "how many GiB the packs may have, from now on; flash gc --budget says the same to a daemon that runs")
	cmd.Flags().BoolVar(&stop, "stop", false, "end the daemon that runs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tcp, err := tcpAddress(listen, tokenFile)
		if err != nil {
			return err
		}
		budget := int64(budgetGiB * (1 << 30))
		if cmd.Flags().Changed("store-gib") && !(budgetGiB < 1<<32 && budget >= store.MinBudgetBytes) {
			return usageError{fmt.Errorf("--store-gib takes GiB, %g or more, not %g", float64(store.MinBudgetBytes)/(1<<30), budgetGiB)}
		}
		return a.run(func(cmd *cobra.Command, _ []string) error {
			home, err := a.homeDir()
			if err != nil {
				return err
			}
			if stop {
				return a.stopDaemon(cmd.Context(), home)
			}
			return a.serve(cmd.Context(), home, serving{tcp, tokenFile, budget})
		})(cmd, args)
	}
	return cmd
}

func tcpAddress(listen, tokenFile string) (string, error) {
	if listen == "" {
		if tokenFile != "" {
			return "", usageError{errors.New("--token-file goes with --listen")}
		}
		return "", nil
	}
	addr, ok := strings.CutPrefix(listen, "tcp:")
	if _, _, err := net.SplitHostPort(addr); !ok || err != nil {
		return "", usageError{fmt.Errorf("--listen takes tcp:HOST:PORT, not %q", listen)}
	}
	if tokenFile == "" {
		return "", usageError{errors.New("--listen needs --token-file: nobody is served over TCP without a token")}
	}
	return addr, nil
}

// serving says how a daemon answers.
type serving struct {
	tcp, tokenFile string // "": at its socket only
	budgetBytes    int64  // 0: what was set before
}

// budgeter is an API whose store's size can be bounded.
type budgeter interface {
	SetBudget(ctx context.Context, bytes int64) error
}

// serve runs the daemon until it is told to end. It has the home to itself before it opens it, waiting for one that is
// just ending; sockets come last, so that whoever finds them finds a host behind them.
func (a *app) serve(ctx context.Context, home string, how serving) (err error) {
	ctx, stop := signal.NotifyContext(ctx, endSignals...)
	defer stop()
	if err := os.MkdirAll(home, 0o700); err != nil {
		return host.Errorf(host.CodeInvalid, "give a home you may write to with --home or FLASH_HOME", "the home: %w", err)
	}
	unlock, err := lockHome(ctx, home)
	if err != nil {
		return err
	}
	defer unlock()
	log, closeLog, err := a.daemonLog(home)
	if err != nil {
		return err
	}
	defer closeLog()
	api, closer, err := a.open(ctx, home, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	if h, ok := api.(budgeter); ok && how.budgetBytes > 0 {
		if err := h.SetBudget(ctx, how.budgetBytes); err != nil {
			return err
		}
	}

	server := httpapi.New(httpapi.Config{API: api, Log: log, Shutdown: stop})
	unix, err := httpapi.ListenUnix(socketPath(home))
	if err != nil {
		return err
	}
	log.Info("serving", "version", Version, "home", home, "pid", os.Getpid(), "tcp", how.tcp)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(unix) })
	if how.tcp != "" {
		token, err := readToken(how.tokenFile)
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", how.tcp)
		}
		if err != nil {
			unix.Close()
			return errors.Join(host.Errorf(host.CodeInvalid, "give a free address and a token file you may read", "serve at tcp:%s: %w", how.tcp, err), ignoreClosed(group.Wait()))
		}
		a.say("flash serves at tcp:%s", l.Addr())
		group.Go(func() error { return server.ServeTCP(l, token) })
	}
	<-ctx.Done()
	stop() // a second signal ends us at once
	log.Info("ending")
	return errors.Join(a.wind(server, closer, log), group.Wait())
}

// vmStopper is a closer that can stop its VMs before the rest.
type vmStopper interface{ StopVMs() error }

// wind ends what goes on. VMs are saved and stopped while their commands run: cancelling those first would kill them,
// and it is the killed that would come back. Their callers are told where the commands go on. Then every other request
// has drainTimeout.
func (a *app) wind(server *httpapi.Server, closer io.Closer, log *slog.Logger) error {
	drain, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stopping errgroup.Group
	stopping.Go(func() error {
		var err error
		if vms, ok := closer.(vmStopper); ok {
			err = vms.StopVMs()
		}
		timer := time.AfterFunc(drainTimeout, cancel)
		context.AfterFunc(drain, func() { timer.Stop() })
		return err
	})
	if err := server.Shutdown(drain); err != nil {
		log.Warn("requests were cancelled", "after", drainTimeout)
	}
	return stopping.Wait()
}

// lockHome takes the lock that a daemon has for as long as it has the home open.
func lockHome(ctx context.Context, home string) (unlock func(), err error) {
	c := httpapi.NewClient(socketPath(home))
	defer c.Close()
	if c.Health(ctx) == nil {
		return nil, host.Errorf(host.CodeStoreLocked, "use it, or end it with flash serve --stop", "another daemon answers at %s", socketPath(home))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout/2, host.Errorf(host.CodeStoreLocked, "wait for it, or look at its log "+logPath(home), "another daemon has %s and doesn't answer", home))
	defer cancel()
	return lockFile(ctx, filepath.Join(home, "daemon.lock"))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// daemonLog logs to the home's flash.log, and to stderr too when that is somewhere else.
func (a *app) daemonLog(home string) (*slog.Logger, func() error, error) {
	f, err := openLog(home)
	if err != nil {
		return nil, nil, err
	}
	var w io.Writer = f
	if !sameFile(a.stderr, f) {
		w = io.MultiWriter(f, a.stderr)
	}
	level := slog.LevelInfo
	if a.getenv("FLASH_LOG") == "debug" { // where the time of each step went
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), f.Close, nil
}

func sameFile(w io.Writer, f *os.File) bool {
	g, ok := w.(*os.File)
	if !ok {
		return false
	}
	i, err1 := g.Stat()
	j, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(i, j)
}

const (
	maxTokenBytes = 4 << 10
)

// readToken reads the token, or makes a new one where there is no file.
func readToken(path string) (string, error) {
	p, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		token := rand.Text() + rand.Text() // 2 × 130 bits in base32
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(token + "\n")
		return token, errors.Join(err, f.Close())
	}
	if err != nil {
		return "", err
	}
	if len(p) > maxTokenBytes {
		return "", fmt.Errorf("%s is too long for a token", filepath.Base(path))
	}
	return strings.TrimSpace(string(p)), nil
}

// stopDaemon ends the daemon and says so.
func (a *app) stopDaemon(ctx context.Context, home string) error {
	c := httpapi.NewClient(socketPath(home))
	defer c.Close()
	if err := endInOrder(ctx, home, c, startTimeout); err != nil {
		return err
	}
	return a.show(map[string]bool{"stopped": true}, func() string { return "the daemon has ended\n" })
}

// endInOrder asks the daemon to end and waits until it has let go of the home.
func endInOrder(ctx context.Context, home string, c *httpapi.Client, limit time.Duration) error {
	if err := c.Shutdown(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, host.Errorf(host.CodeDeadline, "its log flash.log says what it waits for", "the daemon hasn't ended after %s", limit))
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(home, "daemon.lock"))
	if err != nil {
		return err
	}
	unlock()
	return nil
}
