// Package remote is the far tier: the near tier's packs as objects of a bucket, and how a host learns what is in them.
//
// Terms: a pack object is a sealed pack, byte for byte (cas/pack). A catalogue is an object that lists packs with all their
// entries; the catalogue is all of them together. A window is an aligned part of WindowBytes of a pack object: what is
// fetched, and cached on disk. A span is a row of windows that one request fetches.
//
// # Objects
//
//	packs/<content hash>.pack    write-once; exists = done
//	catalog/<content hash>.cat   write-once; a pack counts as present only when a catalogue names it
//
// Under encryption a list shows other keys than were put (cas/bucket/seal), so no name is read out of a key: every object
// says itself what it is, and its content hash is checked.
//
// # Catalogue format, version 1
//
// All numbers are little-endian. A catalogue is
//
//	header, pack …, entry …, trailer
//
// Header, 64 bytes:
//
//	 0  8  magic "FLSHCATL"
//	 8  2  version, 1
//	10  2  header bytes, 64
//	12  4  key id: which key names the chunks (cas.KeyID); 0 means plain BLAKE3
//	16  4  number of packs
//	20  4  zero
//	24  8  number of entries of all packs
//	32 28  zero
//	60  4  CRC-32C of bytes 0–59
//
// Pack, 80 bytes, ascending by content hash:
//
//	 0 16  pack id
//	16 32  content hash
//	48  8  bytes of the pack object
//	56  8  plain bytes of its records
//	64  8  creation time, nanoseconds since 1970 UTC
//	72  4  number of entries
//	76  4  zero
//
// Entries, 40 bytes each: every pack's footer entries as they are in the pack, in the order of the packs. They are not
// compressed: hashes have no redundancy, and they are four fifths of it.
//
// Trailer, 40 bytes:
//
//	 0 32  content hash: plain BLAKE3-256 of all bytes before it; it names the object
//	32  8  magic "FLSHCEND"
//
// A catalogue is split at some 16 MiB, and never longer than 256 MiB.
//
// # Cache folder
//
//	windows/<content hash>/<n>   window n of a pack object: the whole window, or what the object has of it
//	catalog/<…>.cat              a catalogue object as it was read, under the last element of its key
//	….tmp                        being written; removed at Open
//
// Nothing there is needed and nothing is trusted: a chunk's bytes are served only under the name they hash to (I1), a
// catalogue only if its content hash is right. A window that is bad is dropped and fetched once more before a chunk is
// called corrupt.
//
// # Order of writes
//
// Upload: packs, then the catalogue that names them. Drop: catalogues without the packs, then the old catalogues' removal,
// then the packs'. So at any instant, and after any crash, every pack that a catalogue names is whole.
//
// # Memory
//
// 28 bytes an entry: 16 of the hash, and where the record is. Ten million chunks, some 20 GiB of packs, take 280 MB.
//
// # Lock order
//
//	refreshMu → index.mu
//
// index.mu, flights.mu and cache.mu are leaves, and none is held across a request or a file's reading.
package remote
