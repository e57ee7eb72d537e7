//go:build !linux

package bench

import "os"

// allocated is what a file is long: how much of it is allocated isn't told portably.
func allocated(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
