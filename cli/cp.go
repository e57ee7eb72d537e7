package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

func (a *app) cpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cp FILE VM:/PATH | VM:/PATH FILE",
		Short: "copy files into and out of a VM",
		Long: `cp copies a file or a folder. Where the target is an existing folder it is put into it, else it gets the target's name.
With - instead of FILE, a tar stream goes from stdin below VM:/PATH, or from VM:/PATH to stdout.

Copying in, files belong to root in the guest; copying out, to you, without set-user-id bits. Devices are left out.

Exit codes: 0 copied, 1 refused or failed, 2 wrong usage.`,
		Example: "  flash cp ./project agent-1:/work/\n  flash cp agent-1:/var/log/syslog .\n  flash cp agent-1:/work - | tar t",
		Args:    exactArgs("a source", "a target"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromVM, err1 := parsePlace(args[0])
			to, toVM, err2 := parsePlace(args[1])
			if err := errors.Join(err1, err2); err != nil {
				return usageError{err}
			}
			if (fromVM == "") == (toVM == "") {
				return usageError{errors.New("exactly one side of cp is VM:/PATH")}
			}
			return a.withAPI(func(ctx context.Context, api host.API, _ []string) error {
				if toVM != "" {
					return a.copyIn(ctx, api, from, toVM, to)
				}
				return a.copyOut(ctx, api, fromVM, from, to)
			})(cmd, args)
		},
	}
}

// parsePlace splits VM:/PATH. Anything else is a path here; ./a:b is how a local name with a colon is given.
func parsePlace(s string) (p, vm string, err error) {
	vm, p, ok := strings.Cut(s, ":")
	if !ok || vm == "" || strings.ContainsAny(vm, `/\`) || strings.HasPrefix(vm, ".") || filepath.VolumeName(s) != "" {
		return s, "", nil
	}
	if !strings.HasPrefix(p, "/") {
		return "", "", fmt.Errorf("a path in a VM begins with /: %s:/%s", vm, p)
	}
	return p, vm, nil
}

func (a *app) copyIn(ctx context.Context, api host.API, from, vm, to string) error {
	if from == "-" {
		return api.CopyIn(ctx, vm, to, a.stdin)
	}
	if _, err := os.Lstat(from); err != nil {
		return host.Errorf(host.CodeInvalid, "check the path", "cp: %w", err)
	}
	dir, name, err := targetInside(ctx, api, vm, to, filepath.Base(filepath.Clean(from)))
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packTar(ctx, w, from, name)
		w.CloseWithError(err)
		packed <- err
	}()
	err = api.CopyIn(ctx, vm, dir, r)
	r.CloseWithError(errors.New("the VM takes no more"))
	if packErr := <-packed; err == nil && packErr != nil {
		err = packErr
	}
	return localError("cp "+from, err)
}

// targetInside decides where a source named base goes in the guest: into path when that is a folder, else to path
// itself. It finds out by asking for path as a tar stream, of which the first header is enough.
func targetInside(ctx context.Context, api host.API, vm, to, base string) (dir, name string, err error) {
	to, wantsFolder := path.Clean(to), strings.HasSuffix(to, "/")
	if base == "." || base == ".." || base == string(filepath.Separator) {
		return "", "", usageError{errors.New("give the source a name")}
	}
	if to == "/" || wantsFolder {
		return to, base, nil
	}
	for range maxLinks {
		h, err := firstHeader(ctx, api, vm, to)
		switch {
		case httpapi.CodeOf(err) == host.CodePathNotFound: // a name for what is copied
			return path.Dir(to), path.Base(to), nil
		case err != nil:
			return "", "", err
		case h.Typeflag == tar.TypeDir:
			return to, base, nil
		case h.Typeflag != tar.TypeSymlink:
			return path.Dir(to), path.Base(to), nil
		case path.IsAbs(h.Linkname):
			to = path.Clean(h.Linkname)
		default:
			to = path.Join(path.Dir(to), h.Linkname)
		}
	}
	return "", "", host.Errorf(host.CodeInvalid, "give the folder itself", "cp: %s is a symbolic link in a circle", to)
}

const maxLinks = 16

// firstHeader gives the first entry of a path's tar stream and leaves the rest.
func firstHeader(ctx context.Context, api host.API, vm, p string) (*tar.Header, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := api.CopyOut(ctx, vm, p, w)
		w.CloseWithError(err)
		done <- err
	}()
	h, err := tar.NewReader(r).Next()
	cancel()
	r.CloseWithError(errors.New("enough is known"))
	if outErr := <-done; err != nil && outErr != nil {
		err = outErr
	}
	return h, err
}

func (a *app) copyOut(ctx context.Context, api host.API, vm, from, to string) error {
	if to == "-" {
		return api.CopyOut(ctx, vm, from, a.stdout)
	}
	dir, name := filepath.Dir(filepath.Clean(to)), filepath.Base(filepath.Clean(to))
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		dir, name = to, "" // keep the guest's name
	case err == nil && strings.HasSuffix(to, "/"):
		return host.Errorf(host.CodeInvalid, "give a folder", "cp: %s is no folder", to)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return host.Errorf(host.CodeInvalid, "check the path", "cp: %w", err)
	}
	if name == "" && path.Clean(from) == "/" {
		name = vm // the guest's root has no name of its own
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return host.Errorf(host.CodeInvalid, "make the folder first", "cp: %w", err)
	}
	defer root.Close()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := api.CopyOut(ctx, vm, from, w)
		w.CloseWithError(err)
		done <- err
	}()
	skipped, err := unpackTar(ctx, r, root, name)
	r.CloseWithError(errors.New("unpacking has ended"))
	if outErr := <-done; outErr != nil && (err == nil || errors.Is(err, outErr)) {
		err = outErr
	}
	if skipped > 0 {
		a.say("flash: %d devices and the like were left out", skipped)
	}
	return localError("cp "+vm+":"+from, err)
}

// localError tells a failure of this side's files as refused, not as a bug.
func localError(what string, err error) error {
	var e *host.Error
	if err == nil || errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	return host.Errorf(host.CodeInvalid, "check the path and its permissions", "%s: %w", what, err)
}
