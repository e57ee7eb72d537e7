package dir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"flash/cas/bucket"
)

// hashedBytes is the longest object whose version is its contents' hash; the package comment says why.
const hashedBytes = 1 << 20

// Get reads a whole object.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	var data []byte
	var version bucket.Version
	err := b.read(ctx, "get", key, func(f *os.File, info fs.FileInfo) error {
		if info.Size() > limit {
			return fmt.Errorf("%w: %d bytes, %d at most", bucket.ErrTooLarge, info.Size(), limit)
		}
		data = make([]byte, info.Size())
		if _, err := io.ReadFull(f, data); err != nil {
			return err
		}
		if info.Size() <= hashedBytes {
			version = hashVersion(data)
		} else {
			version = stampVersion(info)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return data, version, nil
}

// GetRange fills dst from offset on.
func (b *Bucket) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("get %s: the offset %d is negative", b.at(key), offset)
	}
	return b.read(ctx, "get", key, func(f *os.File, info fs.FileInfo) error {
		if info.Size()-offset < int64(len(dst)) { // no sum that could overflow
			return fmt.Errorf("%w: %d bytes at %d of %d", bucket.ErrShort, len(dst), offset, info.Size())
		}
		_, err := f.ReadAt(dst, offset)
		return err
	})
}

// Stat says what there is.
func (b *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	var found bucket.Info
	err := b.read(ctx, "stat", key, func(f *os.File, info fs.FileInfo) error {
		version, err := versionOfFile(f, info)
		found = bucket.Info{Key: key, Bytes: info.Size(), Version: version, Modified: info.ModTime()}
		return err
	})
	return found, err
}

// read opens a key's file and calls f. The file is the same throughout, whoever replaces it meanwhile; over NFS it may vanish
// instead, and is then opened again.
func (b *Bucket) read(ctx context.Context, op, key string, f func(*os.File, fs.FileInfo) error) error {
	name, err := nameOf(key)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s %s: %w", op, b.at(key), err)
		}
		err := b.readOnce(name, f)
		if err == nil || !stale(err) || try == 4 {
			return classify(op, b.at(key), err)
		}
	}
}

func (b *Bucket) readOnce(name string, f func(*os.File, fs.FileInfo) error) error {
	file, err := b.root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return bucket.ErrNotFound // a folder is on the way to objects, and none itself
	}
	return f(file, info)
}

// versionOf is the version of the file at a name, "" and fs.ErrNotExist if there is none.
func (b *Bucket) versionOf(name string) (bucket.Version, error) {
	var version bucket.Version
	err := b.readOnce(name, func(f *os.File, info fs.FileInfo) error {
		var err error
		version, err = versionOfFile(f, info)
		return err
	})
	if notAFolder(err) {
		return "", fs.ErrNotExist
	}
	return version, err
}

func versionOfFile(f *os.File, info fs.FileInfo) (bucket.Version, error) {
	if info.Size() > hashedBytes {
		return stampVersion(info), nil
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil && !(err == io.EOF && len(data) == 0) {
		return "", err
	}
	return hashVersion(data), nil
}

func hashVersion(data []byte) bucket.Version {
	sum := sha256.Sum256(data)
	return bucket.Version(hex.EncodeToString(sum[:16]))
}

func stampVersion(info fs.FileInfo) bucket.Version {
	return bucket.Version(fmt.Sprintf("%d-%d-%d", info.Size(), info.ModTime().UnixNano(), fileNumber(info)))
}

// List walks the folders that may hold keys with the prefix, in the order of the keys: a folder sorts as its name and a '/'.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if err := bucket.CheckPrefix(prefix); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		above, _ := path.Split(prefix)
		folder := "."
		if above != "" {
			name, err := nameOf(strings.TrimSuffix(above, "/"))
			if err != nil { // no file can have such a name
				return
			}
			folder = name
		}
		l := &lister{b: b, ctx: ctx, prefix: prefix, yield: yield}
		if err := l.walk(folder, above); err != nil && err != errEnough {
			yield(bucket.Info{}, classify("list", b.at(prefix), err))
		}
	}
}

var errEnough = errors.New("the caller has seen enough")

type lister struct {
	b      *Bucket
	ctx    context.Context
	prefix string
	yield  func(bucket.Info, error) bool
}

// walk yields the objects in a folder, of which all keys begin with above.
func (l *lister) walk(folder, above string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	files, err := l.b.readFolder(folder)
	if errors.Is(err, fs.ErrNotExist) || notAFolder(err) {
		return nil // it has none, or they were all deleted meanwhile
	}
	if err != nil {
		return err
	}
	type entry struct{ order, name string }
	var entries []entry
	for _, f := range files {
		element, ok := elementOf(f.Name())
		if !ok {
			continue // our own files, a file system's, or someone's
		}
		key := above + element
		if f.IsDir() {
			key += "/"
		}
		if strings.HasPrefix(key, l.prefix) || (f.IsDir() && strings.HasPrefix(l.prefix, key)) {
			entries = append(entries, entry{key, path.Join(folder, f.Name())})
		}
	}
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.order, y.order) })
	for _, e := range entries {
		if strings.HasSuffix(e.order, "/") {
			err = l.walk(e.name, e.order)
		} else {
			err = l.object(e.order)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) object(key string) error {
	info, err := l.b.Stat(l.ctx, key)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !l.yield(info, nil) {
		return errEnough
	}
	return nil
}

func (b *Bucket) readFolder(name string) ([]fs.DirEntry, error) {
	f, err := b.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
