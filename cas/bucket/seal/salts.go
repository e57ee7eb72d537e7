package seal

import "sync"

// saltCacheObjects is how many objects' salts are remembered: 16,384 × about 150 bytes are 2.5 MB, and packs of 16 MiB
// would be 256 GiB.
const saltCacheObjects = 16 << 10

// object is what a range needs to know of an object besides the range.
type object struct {
	header      header
	sealedBytes int64 // 0: not known
}

// saltCache remembers objects of which ranges were read, so that the next range is one request. What it remembers may be
// stale: a segment that doesn't open with it makes the reader ask again.
type saltCache struct {
	mu      sync.Mutex // guards the rest
	objects map[string]object
}

func (c *saltCache) get(storedKey string) (object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[storedKey]
	return o, ok
}

func (c *saltCache) put(storedKey string, o object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		c.objects = map[string]object{}
	}
	if _, known := c.objects[storedKey]; !known && len(c.objects) >= saltCacheObjects {
		for k := range c.objects { // any one: Go's order is random enough
			delete(c.objects, k)
			break
		}
	}
	c.objects[storedKey] = o
}

func (c *saltCache) forget(storedKey string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, storedKey)
}
