package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"flash/cas/bucket"
)

// staleTempAge is how long a put may take before another one takes its temporary file for a killed one's.
const staleTempAge = 24 * time.Hour

// Put writes the bytes beside, then gives them their name.
func (b *Bucket) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	name, err := nameOf(key)
	if err != nil {
		return "", err
	}
	if err := bucket.CheckCondition(c); err != nil {
		return "", err
	}
	version, err := b.put(ctx, name, r, size, c)
	if err != nil {
		return "", classify("put", b.at(key), err)
	}
	return version, nil
}

func (b *Bucket) put(ctx context.Context, name string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	if err := b.root.MkdirAll(tempDir, 0o777); err != nil {
		return "", err
	}
	temp := tempDir + "/" + rand.Text()
	defer b.root.Remove(temp) // gone already where all went well
	if err := b.writeTemp(ctx, temp, r, size); err != nil {
		return "", err
	}
	b.sweep.Do(func() { b.removeStaleTemps(temp) })
	var version bucket.Version
	err := b.locked(ctx, func() error {
		if c != (bucket.Condition{}) {
			now, err := b.versionOf(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if now != c.Match {
				version, err = b.alreadyThere(name, r, size, now)
				return err
			}
		}
		if err := b.rename(temp, name, c.Absent); err != nil {
			return err
		}
		var err error
		version, err = b.versionOf(name)
		return err
	})
	return version, err
}

// writeTemp writes and syncs a new file.
func (b *Bucket) writeTemp(ctx context.Context, temp string, r io.ReaderAt, size int64) error {
	f, err := b.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close() // again where all went well, which is harmless
	if n, err := io.Copy(f, &cancelReader{ctx, io.NewSectionReader(r, 0, size)}); err != nil {
		return err
	} else if n != size {
		return fmt.Errorf("the source ends after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// cancelReader ends a copy when its context does.
type cancelReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// rename gives temp its name, makes the folders on the way, and syncs what changed. Precondition: the lock is held.
func (b *Bucket) rename(temp, name string, first bool) error {
	parent := path.Dir(name)
	if err := b.makeFolders(parent); err != nil {
		return err
	}
	if first {
		switch err := b.root.Link(temp, name); {
		case err == nil:
			return b.syncFolder(parent)
		case errors.Is(err, fs.ErrExist): // by someone whom the lock doesn't hold
			return bucket.ErrCondition
		} // the file system has no links: the lock is what there is
	}
	if err := b.root.Rename(temp, name); err != nil {
		return err
	}
	return b.syncFolder(parent)
}

// makeFolders makes the absent folders of a path, and makes them last.
func (b *Bucket) makeFolders(folder string) error {
	if folder == "." {
		return nil
	}
	if info, err := b.root.Stat(folder); err == nil && info.IsDir() {
		return nil
	}
	parent := path.Dir(folder)
	if err := b.makeFolders(parent); err != nil {
		return err
	}
	if err := b.root.Mkdir(folder, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return b.syncFolder(parent)
}

func (b *Bucket) syncFolder(folder string) error {
	f, err := b.root.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !cannotSyncFolders(err) {
		return fmt.Errorf("sync the folder %s: %w", folder, err)
	}
	return nil
}

// alreadyThere is the answer to a put whose condition failed: it succeeded if it was this one that wrote the object, which the
// bytes tell. Precondition: the lock is held.
func (b *Bucket) alreadyThere(name string, r io.ReaderAt, size int64, now bucket.Version) (bucket.Version, error) {
	f, err := b.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: it is gone", bucket.ErrCondition)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() == size {
		same, err := sameBytes(f, io.NewSectionReader(r, 0, size))
		if err != nil {
			return "", err
		}
		if same {
			return now, nil
		}
	}
	return "", fmt.Errorf("%w: it is at version %s", bucket.ErrCondition, now)
}

func sameBytes(x, y io.Reader) (bool, error) {
	var bufX, bufY [64 << 10]byte
	for {
		n, errX := io.ReadFull(x, bufX[:])
		m, errY := io.ReadFull(y, bufY[:])
		if !bytes.Equal(bufX[:n], bufY[:m]) {
			return false, nil
		}
		if errX == io.EOF || errX == io.ErrUnexpectedEOF {
			return errY == errX, nil
		}
		if err := errors.Join(errX, errY); err != nil {
			return false, err
		}
	}
}

// Delete removes the file, and the folders that it leaves empty.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	name, err := nameOf(key)
	if err != nil {
		return err
	}
	err = b.locked(ctx, func() error {
		if err := b.root.Remove(name); err != nil {
			if errors.Is(err, fs.ErrNotExist) || notAFolder(err) {
				return nil
			}
			return err
		}
		parent := path.Dir(name)
		for ; parent != "."; parent = path.Dir(parent) {
			if b.root.Remove(parent) != nil { // not empty
				break
			}
		}
		return b.syncFolder(parent)
	})
	return classify("delete", b.at(key), err)
}

// removeStaleTemps removes the temporary files of puts that were killed: those much older, by the file system's own clock,
// than one just written. What it can't remove lies there a little longer.
func (b *Bucket) removeStaleTemps(just string) {
	now, err := b.root.Stat(just)
	if err != nil {
		return
	}
	folder, err := b.root.Open(tempDir)
	if err != nil {
		return
	}
	defer folder.Close()
	files, _ := folder.ReadDir(-1)
	for _, f := range files {
		if info, err := f.Info(); err == nil && now.ModTime().Sub(info.ModTime()) > staleTempAge {
			b.root.Remove(tempDir + "/" + f.Name())
		}
	}
}
