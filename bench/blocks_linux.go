package bench

import (
	"os"
	"syscall"
)

// allocated is what a file occupies on disk, in bytes (stat(2): st_blocks counts 512-byte units).
func allocated(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}
