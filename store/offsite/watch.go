package offsite

import (
	"sync"
	"time"

	"flash/cas/bucket"
)

// watch tells whether somebody elsewhere is alive, by whether an object changes: since when it has been in the state it is
// in, as this process has seen it. No clock but ours counts.
type watch struct {
	mu   sync.Mutex // guards the rest
	seen map[string]sight
}

type sight struct {
	version bucket.Version
	since   time.Time
}

// alive notes a sight, and tells whether the object has changed within leaseTime. What is seen for the first time has.
func (w *watch) alive(key string, v bucket.Version, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]sight{}
	}
	s, ok := w.seen[key]
	if !ok || s.version != v || now.Before(s.since) {
		s = sight{v, now}
		w.seen[key] = s
	}
	return now.Sub(s.since) < leaseTime
}

func (w *watch) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, key)
}
