package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"flash/store"
)

// bootFileMode lets a machine's process, which may have a user of its own, read what it is handed. Nobody else gets there: the
// home is closed.
const bootFileMode = 0o644

// bootFile gives a kernel or initrd as a file, written from the store once.
func (h *Host) bootFile(ctx context.Context, snap *store.Snapshot, name string) (string, error) {
	im, err := snap.Image(ctx, name)
	if err != nil {
		return "", h.explain(fmt.Errorf("bundle: %w", err), "")
	}
	path := filepath.Join(h.cfg.Home, "boot", snap.ID().String()[:32]+"-"+name)
	if st, err := os.Stat(path); err == nil && uint64(st.Size()) == im.Bytes() && st.Mode()&bootFileMode == bootFileMode { // a power cut can leave it empty
		return path, nil
	}
	b, err := im.ReadAll(ctx)
	if err != nil {
		return "", h.explain(fmt.Errorf("bundle: %s: %w", name, err), "")
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return "", h.explain(err, "")
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	err = also(err, f.Chmod(bootFileMode))
	if err = also(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", h.explain(fmt.Errorf("write %s: %w", path, err), "")
	}
	return path, nil
}
