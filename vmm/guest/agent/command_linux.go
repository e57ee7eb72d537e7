package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command is a request made ready for the kernel.
type command struct {
	path string
	argv []string
	env  []string
	cwd  string
	who  account
}

// resolve finds user, folder and program. What it can tell before the command runs it tells in words.
func resolve(r guest.ExecRequest, dir *accounts) (command, error) {
	who, err := dir.find(r.User)
	if err != nil {
		return command{}, err
	}
	c := command{argv: r.Argv, who: who, env: environment(r, who)}
	if c.cwd, err = folder(r.Cwd, who.home); err != nil {
		return command{}, err
	}
	c.path, err = lookPath(r.Argv[0], c.cwd, valueOf(c.env, "PATH"))
	return c, err
}

// environment is the guest's default with the request's on top.
func environment(r guest.ExecRequest, who account) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + who.home, "USER=" + who.name, "LOGNAME=" + who.name}
	if r.TTY {
		env = append(env, "TERM=xterm-256color")
	}
	for _, set := range r.Env {
		key, _, _ := strings.Cut(set, "=")
		replaced := false
		for i, have := range env {
			if strings.HasPrefix(have, key+"=") {
				env[i], replaced = set, true
			}
		}
		if !replaced {
			env = append(env, set)
		}
	}
	return env
}

func valueOf(env []string, key string) string {
	for _, set := range env {
		if v, ok := strings.CutPrefix(set, key+"="); ok {
			return v
		}
	}
	return ""
}

// folder is where a command starts: what was asked for, or the home, or / when there is no home.
func folder(asked, home string) (string, error) {
	if asked == "" {
		if mode, err := modeOf(home); err == nil && mode&unix.S_IFMT == unix.S_IFDIR {
			return home, nil
		}
		return "/", nil
	}
	if !filepath.IsAbs(asked) {
		asked = filepath.Join(home, asked)
	}
	mode, err := modeOf(asked)
	switch {
	case err != nil:
		return "", &guest.AgentError{Code: guest.CodeNoDir, Message: fmt.Sprintf("the guest has no folder %s: %v", asked, err)}
	case mode&unix.S_IFMT != unix.S_IFDIR:
		return "", &guest.AgentError{Code: guest.CodeNoDir, Message: asked + " is not a folder in the guest"}
	}
	return asked, nil
}

// lookPath finds a program as a shell would.
func lookPath(name, cwd, path string) (string, error) {
	if name == "" {
		return "", &guest.AgentError{Code: guest.CodeNoCommand, Message: "the command's name is empty"}
	}
	if strings.Contains(name, "/") {
		path, name = "", absolute(cwd, name)
	}
	found := ""
	for more := path != "" || name[0] == '/'; more; {
		dir, candidate := "", name
		if dir, path, more = strings.Cut(path, ":"); !strings.HasPrefix(name, "/") {
			candidate = absolute(cwd, dir) + "/" + name
		}
		mode, err := modeOf(candidate)
		if err != nil {
			continue
		}
		if mode&unix.S_IFMT == unix.S_IFREG && mode&0o111 != 0 {
			return candidate, nil
		}
		if found == "" {
			found = candidate
		}
	}
	if found != "" {
		return "", &guest.AgentError{Code: guest.CodeNotExecutable, Message: found + " is not an executable file"}
	}
	return "", &guest.AgentError{Code: guest.CodeNoCommand, Message: fmt.Sprintf("the guest has no command %q", name)}
}

// modeOf is what package os makes a FileInfo for, in hundreds of instructions that a restored guest has never run.
func modeOf(path string) (uint32, error) {
	var s unix.Stat_t
	for {
		if err := unix.Stat(path, &s); err != unix.EINTR {
			return s.Mode, err
		}
	}
}

func absolute(cwd, p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(cwd, p)
}

// startError puts the kernel's refusal to start a command into words.
func startError(c command, err error) error {
	e := &guest.AgentError{Code: guest.CodeFailed, Message: fmt.Sprintf("start %s: %v", c.path, err)}
	switch err {
	case unix.ENOENT:
		e.Code = guest.CodeNoCommand
		e.Message = fmt.Sprintf("start %s: its interpreter or loader isn't there", c.path)
	case unix.ENOEXEC:
		e.Code = guest.CodeNotExecutable
		e.Message = fmt.Sprintf("start %s: not a program of this machine, and no #! line", c.path)
	case unix.EACCES, unix.EPERM:
		e.Code = guest.CodePermission
		e.Message = fmt.Sprintf("start %s in %s: user %s may not", c.path, c.cwd, c.who.name)
	}
	return e
}

// reason gives an error without the path that the sentence names already.
func reason(err error) error {
	if p, ok := err.(*os.PathError); ok {
		return p.Err
	}
	return err
}
