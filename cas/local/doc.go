// Package local is the near tier: packs in a folder, and the index that finds chunks in them.
//
// Terms: the open pack takes what is put; when it is full it is rotated, and later sealed: it gets a footer and the name
// of its content. A table is the index of one pack in memory. A run is the sorted index of many sealed packs in a file.
// A hint is tried first and never trusted.
//
// # Folder
//
//	lock                    held by the one process that has the store open
//	packs/<pack id>.open    the open pack, or a rotated one not sealed yet
//	packs/<content hash>.pack
//	packs/<pack id>.tmp     a pack being written whole; removed at open
//	packs/….quarantine      a damaged pack that Repair has replaced; never read, never removed
//	index/<sequence>.run    removed freely: everything in it comes from the packs' footers
//
// # Durability
//
// A chunk is readable when Put returns, from the page cache, and durable when a later Sync returns (I3). Packs are
// write-once: appended to under a temporary name, synced, renamed, folder synced (I2).
//
// After a crash an open pack is scanned, its good records are copied to a new file of the same name, and that is synced.
// The copy drops a torn tail, and it is needed for another reason: after a failed fsync the kernel may show bytes that
// the medium hasn't, and fsync of the same file would then lie. For the same reason a pack whose fsync fails is copied
// before Sync may succeed.
//
// The index may be behind the packs or ahead of them. Behind, the missing packs' footers are read at open. Ahead, entries
// of packs that are gone are skipped. A wrong entry costs a read: bytes are served only under the name they hash to (I1).
//
// # Lock order
//
//	sweepMu → appendMu → packFile.ioMu → packFile.mu
//	sweepMu → appendMu → index.mu → table.mu, packFile.mu
//
// openMu, handles.mu and badMu are leaves. index.mu and packFile.mu are held for reading across a pread, so that a file
// is not closed under it; for writing they are held for as long as it takes to change a field.
package local
