package bucket

import "fmt"

// Stats counts what went to a bucket's server and came back, since the bucket was opened.
type Stats struct {
	Gets, Heads, Puts, Deletes, Lists, Others int64 // requests, tries counted each
	Retries                                   int64 // tries that were not the first
	SentBytes, ReceivedBytes                  int64 // of bodies
}

// Requests is how many there were of all kinds.
func (s Stats) Requests() int64 { return s.Gets + s.Heads + s.Puts + s.Deletes + s.Lists + s.Others }

// Sub is what happened since an earlier count.
func (s Stats) Sub(earlier Stats) Stats {
	return Stats{
		Gets: s.Gets - earlier.Gets, Heads: s.Heads - earlier.Heads, Puts: s.Puts - earlier.Puts,
		Deletes: s.Deletes - earlier.Deletes, Lists: s.Lists - earlier.Lists, Others: s.Others - earlier.Others,
		Retries: s.Retries - earlier.Retries, SentBytes: s.SentBytes - earlier.SentBytes, ReceivedBytes: s.ReceivedBytes - earlier.ReceivedBytes,
	}
}

func (s Stats) String() string {
	return fmt.Sprintf("%d requests (%d get, %d head, %d put, %d delete, %d list), %d retries, %d bytes sent, %d received",
		s.Requests(), s.Gets, s.Heads, s.Puts, s.Deletes, s.Lists, s.Retries, s.SentBytes, s.ReceivedBytes)
}

// Counter is a bucket that counts.
type Counter interface{ Stats() Stats }
