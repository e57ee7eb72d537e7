package cas

import "fmt"

// NamedBytes is the number of leading bytes of Data that the hash covers.
func (c *Chunk) NamedBytes() int {
	if c.Named == 0 {
		return len(c.Data)
	}
	return c.Named
}

// Check tells why no store takes c, or nil. It doesn't compute the hash: whoever made the chunk just did, and every
// read does again.
func (c *Chunk) Check() error {
	switch {
	case c.Hash.IsZero():
		return fmt.Errorf("chunk of %d bytes: the zero hash names nothing", len(c.Data))
	case c.Kind < KindData || c.Kind > KindNote:
		return fmt.Errorf("chunk %s: unknown kind %d", c.Hash, c.Kind)
	case len(c.Data) == 0 || len(c.Data) > MaxChunkBytes:
		return fmt.Errorf("chunk %s: %d bytes, want 1 to %d", c.Hash, len(c.Data), MaxChunkBytes)
	case c.Named < 0 || c.Named > len(c.Data):
		return fmt.Errorf("chunk %s: hash covers %d of %d bytes", c.Hash, c.Named, len(c.Data))
	}
	return nil
}
