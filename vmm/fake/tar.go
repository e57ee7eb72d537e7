package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"flash/vmm/guest"
)

// unpack unpacks a tar stream below dir, which must be there. No entry can leave it.
func (m *Machine) unpack(ctx context.Context, dir string, r io.Reader) error {
	err := m.act(ctx.Done(), agent, func() error {
		ix, err := m.files.read()
		if err == nil && !ix.nodes[dir].Mode.IsDir() {
			err = &guest.AgentError{Code: guest.CodeNoDir, Message: fmt.Sprintf("there is no folder %s", dir)}
		}
		return err
	})
	if err != nil {
		return err
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the tar stream: %w", err)
		}
		name := path.Join(dir, path.Clean("/"+h.Name))
		n := node{Mode: h.FileInfo().Mode(), UID: h.Uid, GID: h.Gid, Time: h.ModTime, Link: h.Linkname}
		if h.Size > maxFileBytes {
			return fmt.Errorf("%s has %d bytes; the fake guest takes %d", h.Name, h.Size, maxFileBytes)
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return fmt.Errorf("the tar stream at %s: %w", h.Name, err)
		}
		if name == dir {
			continue
		}
		err = m.act(ctx.Done(), agent, func() error { return m.unpackOne(h, name, n, data) })
		if err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func (m *Machine) unpackOne(h *tar.Header, name string, n node, data []byte) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return m.files.makeNode(name, n, true)
	case tar.TypeSymlink:
		return m.files.makeNode(name, n, false)
	case tar.TypeReg:
		if parent := path.Dir(name); parent != "/" {
			if err := m.files.makeNode(parent, node{Mode: fs.ModeDir | 0o755, Time: n.Time}, true); err != nil {
				return err
			}
		}
		return m.files.writeFile(name, data, n)
	default:
		return fmt.Errorf("the fake guest doesn't take entries of type %q", string(h.Typeflag))
	}
}

// pack packs a file or folder, named relative to its parent.
func (m *Machine) pack(ctx context.Context, name string, w io.Writer) error {
	var archive bytes.Buffer
	err := m.act(ctx.Done(), agent, func() error {
		ix, err := m.files.read()
		if err != nil {
			return err
		}
		if _, ok := ix.nodes[name]; !ok {
			return &guest.AgentError{Code: guest.CodeNotFound, Message: fmt.Sprintf("there is no %s", name)}
		}
		t := tar.NewWriter(&archive)
		for _, p := range below(ix, name) {
			if err := m.packOne(t, p, strings.TrimPrefix(strings.TrimPrefix(p, path.Dir(name)), "/"), ix.nodes[p]); err != nil {
				return err
			}
		}
		return t.Close()
	})
	if err != nil {
		return err
	}
	_, err = w.Write(archive.Bytes())
	return err
}

func (m *Machine) packOne(t *tar.Writer, full, name string, n node) error {
	if name == "" {
		name = "."
	}
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(n.Mode.Perm()), Uid: n.UID, Gid: n.GID, ModTime: n.Time, Size: int64(n.Bytes), Linkname: n.Link}
	switch {
	case n.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case n.Mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
	}
	if err := t.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	data, err := m.files.readFile(full)
	if err == nil {
		_, err = t.Write(data)
	}
	return err
}
