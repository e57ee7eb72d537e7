package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// followInterval is how often a followed console is looked at for more.
const followInterval = 200 * time.Millisecond

// Logs writes the guest's console; with follow it goes on until ctx ends.
func (h *Host) Logs(ctx context.Context, id string, follow bool, w io.Writer) error {
	if _, err := h.find(id); err != nil {
		return err
	}
	f, err := os.Open(h.consolePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has never run
	}
	if err != nil {
		return h.explain(err, id)
	}
	defer f.Close()
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for at := int64(0); ; {
		n, err := io.Copy(w, f)
		if err != nil {
			return h.explain(err, id)
		}
		at += n
		if !follow {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if st, err := f.Stat(); err == nil && st.Size() < at { // it was trimmed
			if at, err = f.Seek(0, io.SeekStart); err != nil {
				return h.explain(err, id)
			}
		}
	}
}
