package local

// Inline makes maintenance run at the end of Put, so that operations of the file system come in the same order every
// time, and makes index runs of few packs.
func (c Config) Inline(flushTables int) Config {
	c.inline, c.flushTables = true, flushTables
	return c
}
