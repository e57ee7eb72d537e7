package lossy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"flash/cas/castest"
	"flash/cas/local"
)

// Mount shows disk at dir until the result is called, which no process may be using it for any more.
func Mount(dir string, disk *castest.CrashFS) (unmount func() error, err error) {
	if err := disk.MkdirAll("/"); err != nil {
		return nil, err
	}
	f := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: disk, byID: map[uint64]*node{}, byPath: map[string]*node{}}
	f.add("/", nil)
	s, err := fuse.NewServer(f, dir, &fuse.MountOptions{DirectMountStrict: true, FsName: "lossy", Name: "lossy", MaxWrite: 128 << 10, DisableReadDirPlus: true})
	if err != nil {
		return nil, fmt.Errorf("mount a lossy disk at %s: %w", dir, err)
	}
	go s.Serve() // ends with the unmount
	if err := s.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a lossy disk at %s: %w", dir, err), s.Unmount())
	}
	return s.Unmount, nil
}

// server answers the kernel. Folders that the disk doesn't list are those it was asked to make.
type server struct {
	fuse.RawFileSystem
	disk *castest.CrashFS

	mu     sync.Mutex // guards the rest
	byID   map[uint64]*node
	byPath map[string]*node
	last   uint64
}

// node is a file or folder the kernel knows. A file stays what it is under another name, and without one.
type node struct {
	id   uint64
	path string
	file local.File // nil: a folder
}

// forGood is how long the kernel may remember: nobody else changes anything.
const forGood = time.Hour

func (s *server) add(name string, file local.File) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.byPath[name]; n != nil {
		return n
	}
	s.last++
	n := &node{id: s.last, path: name, file: file}
	s.byID[n.id], s.byPath[name] = n, n
	return n
}

func (s *server) node(id uint64) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// pathIn is the path of a name in a folder.
func (s *server) pathIn(folder uint64, name string) string {
	return path.Join(s.node(folder).path, name)
}

func status(err error) fuse.Status {
	var errno syscall.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.Is(err, fs.ErrNotExist):
		return fuse.ENOENT
	case errors.Is(err, fs.ErrExist):
		return fuse.Status(syscall.EEXIST)
	case errors.As(err, &errno):
		return fuse.Status(errno)
	}
	return fuse.EIO
}

func (s *server) attr(n *node, out *fuse.Attr) fuse.Status {
	out.Ino, out.Nlink, out.Blksize = n.id, 1, 4096
	if n.file == nil {
		out.Mode = syscall.S_IFDIR | 0o700
		return fuse.OK
	}
	size, err := n.file.Size()
	out.Mode, out.Size, out.Blocks = syscall.S_IFREG|0o600, uint64(size), uint64(size+511)/512
	return status(err)
}

func (s *server) entry(n *node, out *fuse.EntryOut) fuse.Status {
	out.NodeId, out.Generation = n.id, 1
	out.SetEntryTimeout(forGood)
	out.SetAttrTimeout(forGood)
	return s.attr(n, &out.Attr)
}

func (s *server) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	full := s.pathIn(header.NodeId, name)
	s.mu.Lock()
	n := s.byPath[full]
	s.mu.Unlock()
	if n == nil {
		file, err := s.disk.OpenToWrite(full)
		if err != nil {
			if _, listErr := s.disk.List(full); listErr != nil { // nor is it a folder
				return status(err)
			}
			file = nil
		}
		n = s.add(full, file)
	}
	return s.entry(n, out)
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(forGood)
	return s.attr(s.node(in.NodeId), &out.Attr)
}

// SetAttr knows the length; modes and times are nobody's business here.
func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := s.node(in.NodeId)
	if size, ok := in.GetSize(); ok {
		if err := n.file.Truncate(int64(size)); err != nil {
			return status(err)
		}
	}
	out.SetTimeout(forGood)
	return s.attr(n, &out.Attr)
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	full := s.pathIn(in.NodeId, name)
	if err := s.disk.MkdirAll(full); err != nil {
		return status(err)
	}
	return s.entry(s.add(full, nil), out)
}

func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	full := s.pathIn(in.NodeId, name)
	file, err := s.disk.Create(full)
	if err != nil {
		return status(err)
	}
	return s.entry(s.add(full, file), &out.EntryOut)
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	if in.Flags&syscall.O_TRUNC != 0 {
		return status(s.node(in.NodeId).file.Truncate(0))
	}
	return fuse.OK
}

func (s *server) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	full := s.pathIn(header.NodeId, name)
	if err := s.disk.Remove(full); err != nil {
		return status(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byPath, full)
	return fuse.OK
}

func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	from, to := s.pathIn(in.NodeId, oldName), s.pathIn(in.Newdir, newName)
	if err := s.disk.Rename(from, to); err != nil {
		return status(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.byPath[from]; n != nil {
		n.path = to
		s.byPath[to] = n
		delete(s.byPath, from)
	}
	return fuse.OK
}

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	got, err := s.node(in.NodeId).file.ReadAt(buf, int64(in.Offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:got]), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	wrote, err := s.node(in.NodeId).file.WriteAt(data, int64(in.Offset))
	if err != nil {
		return 0, status(err)
	}
	return uint32(wrote), fuse.OK
}

// Fsync makes the file's name durable too. Badger counts on it for its logs and tables, and ext4, XFS and Btrfs do it.
func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n := s.node(in.NodeId)
	if err := n.file.Sync(); err != nil {
		return status(err)
	}
	s.mu.Lock()
	linked := s.byPath[n.path] == n
	s.mu.Unlock()
	if !linked {
		return fuse.OK
	}
	return status(s.disk.SyncName(n.path))
}

func (s *server) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(s.disk.SyncDir(s.node(in.NodeId).path))
}

func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *server) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

// ReadDir lists files and the folders that were made.
func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	folder := s.node(in.NodeId).path
	files, err := s.disk.List(folder)
	if err != nil {
		return status(err)
	}
	var all []fuse.DirEntry
	for _, f := range files {
		all = append(all, fuse.DirEntry{Name: f.Name, Mode: syscall.S_IFREG, Ino: 1})
	}
	for _, name := range s.disk.Folders(folder) {
		all = append(all, fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: 1})
	}
	for i := in.Offset; i < uint64(len(all)); i++ {
		all[i].Off = i + 1
		if !out.AddDirEntry(all[i]) {
			break
		}
	}
	return fuse.OK
}

func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	free, err := s.disk.FreeBytes("/")
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<30, uint64(free)/4096, uint64(free)/4096
	return status(err)
}
