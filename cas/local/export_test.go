package local

// Inline makes maintenance run at the end of Put, so that operations of the file system come in the same order every
// time, and makes index runs of few packs.
func (c Config) Inline(flushTables int) Config {
	c.inline, c.flushTables = true, flushTables
	return c
}

// SkipSync makes Sync promise what it hasn't done.
func (c Config) SkipSync(skip bool) Config {
	c.skipSync = skip
	return c
}
