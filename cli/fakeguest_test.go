package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// world is a fake guest: files and folders by path, a folder ending in /, and what its processes remember.
type world struct {
	files   map[string]string
	session string // what the demo's session knows; "": it doesn't run
}

func newWorld() world { return world{files: map[string]string{"/": "", "/tmp/": ""}} }

func (w world) clone() world {
	w.files = maps.Clone(w.files)
	return w
}

func (h *fakeHost) Exec(ctx context.Context, r host.ExecRequest, s guest.Streams) (host.ExecResult, error) {
	h.mu.Lock()
	v, err := h.vm(r.ID)
	if err == nil && v.State != "running" {
		err = host.Errorf(host.CodeVMNotRunning, "flash start "+r.ID, "%s is %s", r.ID, v.State)
	}
	if err != nil {
		h.mu.Unlock()
		return host.ExecResult{}, err
	}
	res := host.ExecResult{ExecID: "e9"}
	number := -1
	if r.Checkpoint == nil && v.EachCommand && !h.neverCheckpoints || r.Checkpoint != nil && *r.Checkpoint {
		res.Checkpoint = v.checkpoint(strings.Join(r.Command.Argv, " "), false)
		number = res.Checkpoint.Number
	}
	v.note("exec", r)
	h.mu.Unlock()

	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	res.ExitStatus, err = h.command(ctx, v, r.Command, s)
	if err != nil {
		return host.ExecResult{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if cp, err := v.find(number); err == nil {
		code := res.Code
		cp.ExitCode = &code
	}
	return res, nil
}

// command runs one of the fake guest's few commands.
func (h *fakeHost) command(ctx context.Context, v *fakeVM, c guest.ExecRequest, s guest.Streams) (guest.ExitStatus, error) {
	exit := func(code int) (guest.ExitStatus, error) { return guest.ExitStatus{Code: code}, nil }
	argv := c.Argv
	switch argv[0] {
	case "echo":
		fmt.Fprintln(s.Stdout, strings.Join(argv[1:], " "))
		return exit(0)
	case "warn":
		fmt.Fprintln(s.Stderr, strings.Join(argv[1:], " "))
		return exit(0)
	case "exit":
		code, _ := strconv.Atoi(argv[1])
		return exit(code)
	case "cat":
		if s.Stdin != nil {
			io.Copy(s.Stdout, s.Stdin)
		}
		return exit(0)
	case "show": // what the request says
		fmt.Fprintf(s.Stdout, "env=%v cwd=%s user=%s tty=%t %dx%d timeout=%s stdin=%t\n", c.Env, c.Cwd, c.User, c.TTY, c.Rows, c.Cols, c.Timeout, c.Stdin)
		return exit(0)
	case "flood":
		n, _ := strconv.ParseInt(argv[1], 10, 64)
		io.CopyN(s.Stdout, endless{}, n)
		return exit(0)
	case "wait": // until a signal
		fmt.Fprintln(s.Stdout, "waiting")
		select {
		case name := <-s.Signals:
			fmt.Fprintln(s.Stdout, "got", name)
			return guest.ExitStatus{Code: 143, Signal: name}, nil
		case <-ctx.Done():
			return guest.ExitStatus{}, ctx.Err()
		}
	case "late":
		return guest.ExitStatus{Code: 137, Signal: "KILL", TimedOut: true}, nil
	case "write":
		h.mu.Lock()
		defer h.mu.Unlock()
		v.world.files[argv[1]] = argv[2]
		return exit(0)
	case "read":
		h.mu.Lock()
		defer h.mu.Unlock()
		text, ok := v.world.files[argv[1]]
		if !ok {
			fmt.Fprintf(s.Stderr, "read: %s: No such file or directory\n", argv[1])
			return exit(1)
		}
		fmt.Fprintln(s.Stdout, text)
		return exit(0)
	case "sh":
		h.mu.Lock()
		defer h.mu.Unlock()
		out, code := h.demoScript(&v.world, argv[2])
		fmt.Fprintln(s.Stdout, out)
		return exit(code)
	}
	return guest.ExitStatus{}, host.Errorf(host.CodeExecFailed, "check its name", "%s: no such command", argv[0])
}

// demoScript does what demo 21's scripts do in a real guest.
func (h *fakeHost) demoScript(w *world, script string) (string, int) {
	const program = "/work/project/price.sh"
	fix, has := w.files[program]
	switch script {
	case scriptProject:
		w.files[program] = "buggy"
	case scriptSession, scriptAsk:
		if script == scriptSession {
			h.random++
			w.session = fmt.Sprint("known-", h.random)
		}
		return w.session, map[bool]int{true: 0, false: 143}[w.session != ""]
	case scriptTests:
		switch {
		case !has:
			return "sh: can't open 'run-tests.sh'", 2
		case fix == "rounds":
			return "ok", 0
		}
		return "FAIL " + fix, 1
	case scriptMistake:
		delete(w.files, program)
		w.session = ""
	case scriptSum:
		return "sum of " + fix, 0
	case fixTruncates:
		w.files[program] = "truncates"
	case fixRounds:
		w.files[program] = "rounds"
	case scriptRandom:
		if !h.forksShareRandomness {
			h.random++
		}
		return fmt.Sprint("uuid-", h.random), 0
	}
	return "", 0
}

func (h *fakeHost) AttachExec(ctx context.Context, id, exec string, s guest.Streams) (host.ExecResult, error) {
	if _, err := h.Get(ctx, id); err != nil {
		return host.ExecResult{}, err
	}
	if exec != "" && exec != "e1" {
		return host.ExecResult{}, host.Errorf(host.CodeExecNotFound, "flash attach --list "+id, "there is no exec %s", exec)
	}
	fmt.Fprintln(s.Stdout, "attached to", exec)
	return host.ExecResult{ExitStatus: guest.ExitStatus{Code: 4}, ExecID: "e1"}, nil
}

// CopyIn keeps files' contents and folders' names; it is a real guest's work to keep more.
func (h *fakeHost) CopyIn(ctx context.Context, id, dir string, r io.Reader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return err
	}
	tr := tar.NewReader(r)
	for {
		e, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return host.Errorf(host.CodeInvalid, "send a tar stream", "copy in: %w", err)
		}
		name := path.Join(dir, e.Name)
		if e.Typeflag == tar.TypeDir {
			v.world.files[name+"/"] = ""
			continue
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			return host.Errorf(host.CodeInvalid, "send a tar stream", "copy in: %w", err)
		}
		v.world.files[name] = string(text)
	}
}

func (h *fakeHost) CopyOut(ctx context.Context, id, p string, w io.Writer) error {
	h.mu.Lock()
	v, err := h.vm(id)
	if err != nil {
		h.mu.Unlock()
		return err
	}
	files := maps.Clone(v.world.files)
	h.mu.Unlock()
	tw := tar.NewWriter(w)
	found := false
	for _, name := range slices.Sorted(maps.Keys(files)) {
		clean := strings.TrimSuffix(name, "/")
		if clean != p && !strings.HasPrefix(clean, p+"/") {
			continue
		}
		found = true
		rel := path.Join(path.Base(p), strings.TrimPrefix(clean, p))
		e := &tar.Header{Name: rel, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			e.Name, e.Mode, e.Size, e.Typeflag = rel+"/", 0o755, 0, tar.TypeDir
		}
		if err := errors.Join(tw.WriteHeader(e), write(tw, files[name])); err != nil {
			return err
		}
	}
	if !found {
		return host.Errorf(host.CodeInvalid, "check the path", "%s has no %s", id, p)
	}
	return tw.Close()
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
