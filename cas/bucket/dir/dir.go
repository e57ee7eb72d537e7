// Package dir is a folder as a bucket: for disks that are carried away, and for NFS.
//
// Terms: the root is the folder; an object is a regular file below it, its key's elements the folders on the way, escaped
// (name.go). Our own files lie in root/.flash: the lock file, and the temporary files of puts.
//
// Invariants:
//
//   - A put writes a temporary file, syncs it, renames it to its name, and syncs the folder (and every folder it made): a
//     reader sees the old bytes or the new ones, and so does who looks after a power cut.
//   - What changes names (put's last step, delete) does so under the lock file, which is flock on Linux and its like elsewhere:
//     conditions hold between goroutines, processes, and hosts of one NFS server. A put that must be the first besides makes its
//     name with link(2) where the file system has it, which is atomic even where locks are not.
//   - No key reaches outside of the root: CheckKey, and the file system is entered through os.Root only, which follows no
//     link out of it either.
//
// Versions: an object of at most 1 MiB is its contents' hash (what is moved by Match is small, and two states with the same
// bytes are the same); a longer one is its size, the file's time of change and its number in the file system.
//
// NFS: mount with lookupcache=none or -o noac on hosts that read what others write; a client's caches otherwise show a put
// some seconds late. Without a lock service (nolock) conditional puts are refused as ErrUnsupported.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/lockedfile"

	"flash/cas/bucket"
)

const (
	ownDir   = ".flash" // below the root; keys' names never begin with a dot
	lockPath = ownDir + "/lock"
	tempDir  = ownDir + "/tmp"
)

// Bucket is a folder. All methods are safe for concurrent use.
type Bucket struct {
	path string
	root *os.Root

	turn  chan struct{} // holds one value; who has it may take the file lock: a blocked flock costs a thread
	lock  *lockedfile.Mutex
	sweep sync.Once // removes what killed puts left, before the first put
}

// ParseURL reads file:///path.
func ParseURL(location string) (path string, err error) {
	u, err := url.Parse(location)
	switch {
	case err != nil:
		return "", err
	case u.Scheme != "file" || (u.Host != "" && u.Host != "localhost") || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%s: a folder is written file:///path", location)
	case !strings.HasPrefix(u.Path, "/"):
		return "", fmt.Errorf("%s: the path must be absolute: file:///path", location)
	}
	return filepath.FromSlash(u.Path), nil
}

// Open opens the folder at path. It must be there: a folder made where a disk should have been mounted would take the
// backups to the wrong disk. Close the bucket.
func Open(path string) (*Bucket, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("file://%s: %w: make the folder, or mount its disk", filepath.ToSlash(path), bucket.ErrNoBucket)
		}
		return nil, classify("open", "file://"+filepath.ToSlash(path), err)
	}
	b := &Bucket{path: path, root: root, turn: make(chan struct{}, 1), lock: lockedfile.MutexAt(filepath.Join(path, filepath.FromSlash(lockPath)))}
	b.turn <- struct{}{}
	return b, nil
}

// Close frees the folder. Calls that still run fail.
func (b *Bucket) Close() error { return b.root.Close() }

// Location is the folder's file:// URL.
func (b *Bucket) Location() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(b.path)}).String()
}

// locked runs f while nobody else changes names. It waits as long as ctx does; a lock that arrives later is given back.
func (b *Bucket) locked(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.root.MkdirAll(ownDir, 0o777); err != nil {
		return err
	}
	select {
	case <-b.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	type taken struct {
		unlock func()
		err    error
	}
	got := make(chan taken, 1)
	go func() {
		unlock, err := b.lock.Lock()
		got <- taken{unlock, err}
	}()
	select {
	case l := <-got:
		defer func() { b.turn <- struct{}{} }()
		if l.err != nil {
			if noLocks(l.err) {
				return fmt.Errorf("%w: files can't be locked there: mount it with a lock service: %w", bucket.ErrUnsupported, l.err)
			}
			return l.err
		}
		defer l.unlock()
		return f()
	case <-ctx.Done():
		go func() {
			if l := <-got; l.err == nil {
				l.unlock()
			}
			b.turn <- struct{}{}
		}()
		return ctx.Err()
	}
}

// classify turns what the file system says into one of the bucket's kinds, as a sentence.
func classify(op, what string, err error) error {
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bucket.ErrNotFound) || errors.Is(err, bucket.ErrNoBucket):
	case (errors.Is(err, fs.ErrNotExist) || notAFolder(err)) && (op == "put" || op == "delete"): // these make what they lack
		kind = bucket.ErrNoBucket
	case errors.Is(err, fs.ErrNotExist) || notAFolder(err):
		kind = bucket.ErrNotFound
	case errors.Is(err, fs.ErrPermission) || readOnly(err):
		kind = bucket.ErrDenied
	case mayPass(err):
		kind = bucket.ErrUnavailable
	}
	if kind == nil {
		return fmt.Errorf("%s %s: %w", op, what, err)
	}
	return fmt.Errorf("%s %s: %w: %w", op, what, kind, err)
}

// at names an object for people.
func (b *Bucket) at(key string) string { return b.Location() + "/" + key }

var _ bucket.Bucket = (*Bucket)(nil)
var _ io.Closer = (*Bucket)(nil)
