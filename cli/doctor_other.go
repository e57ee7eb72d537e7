//go:build !unix

package cli

import "errors"

// freeBytes isn't asked for here: the system has another call for it, and the engine doesn't run on it.
func freeBytes(string) (uint64, error) {
	return 0, errors.New("free space can't be told on this system")
}
