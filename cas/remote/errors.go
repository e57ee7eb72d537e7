package remote

import "errors"

// permanent tells whether asking again is of no use: a chunk that is lost or corrupt, and not a bucket that doesn't answer.
func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}
