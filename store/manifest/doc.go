// Package manifest encodes and decodes snapshots, which are image trees with structural sharing and snapshot records, and
// what names them: the histories of VMs, and notes that keep names
// beside the chunks.
//
// Terms: a slot is 4 KiB of an image. An entry says what a slot, or a whole subtree, holds: zero, one 8-byte pattern
// over and over (same-filled), or a chunk. A node is a run of entries; a leaf (level 0) has one entry a slot, an inner
// node (level ≥ 1) one entry a child. The shape depends only on the number of slots: a leaf has 128 entries, an inner
// node 256, the tree is as low as it can be, and entries past the image's end are zero.
// A full node lists all its entries. A patch names a full node, its base, and the entries that differ from it.
//
// Invariants
//
//   - A node's or record's name is the hash of its canonical part. Location hints follow it, in the annotation, which the
//     name does not cover: moving chunks changes no names. An absent annotation means "no hints".
//   - The canonical part delimits itself and is never SlotBytes long, so nothing a guest writes to a page can pass for
//     a node, nor a node for a page.
//   - A subtree of zeros is a zero entry, never a node: one content has one full encoding.
//   - The base of a patch is a full node of the same level, so reading any node takes at most two reads.
//
// All numbers are little-endian. Decoding bounds every count before it is used and refuses what is unsorted, repeated,
// left over, of another version, or not the one way to say it.
//
// # Full node, canonical part
//
//	0  u8      'N'
//	1  u8      version, 1
//	2  u8      form, 1: full
//	3  u8      level, 0 to 4
//	4  E/4 B   tags, two bits an entry, the first in the lowest bits; E = 128 (level 0) or 256
//	           0 zero · 1 same-filled (level 0 only) · 2 chunk
//	…          for each entry that isn't zero: 8 B pattern (never all zero), or 32 B hash
//	…  u8      0, only if the part would else be SlotBytes long
//
// # Patch, canonical part
//
//	0  u8      'N'
//	1  u8      version, 1
//	2  u8      form, 2: patch
//	3  u8      level
//	4  32 B    hash of the base
//	36 u16     number of entries, 1 to E
//	38         for each, indices ascending: u8 index, u8 tag, then 0, 8 or 32 B
//	…  u8      0, only if the part would else be SlotBytes long
//
// # Snapshot record, canonical part
//
//	0  u8      'S'
//	1  u8      version, 1
//	2  u8      kind, 1: bundle, 2: checkpoint
//	3  u8      0
//	4  32 B    hash of the parent's record; zero: none
//	36 i64     created, nanoseconds since 1970 UTC
//	44 u16     number of facts; for each, keys ascending: u8 length, key, u16 length, value
//	…  u16     number of images; for each, names ascending: u8 length, name, u64 bytes, 32 B hash of the root (zero: all zeros)
//	…  u8      0, only if the part would else be SlotBytes long
//
// # History
//
// All that is known of one VM beside its chunks: a whole object, of any length up to 1 GiB, that needs no other.
//
//	0  u8      'H'
//	1  u8      version, 1
//	2  u8      0
//	3  u8      length, and the VM's name, 1 to 128 bytes of UTF-8 without zero bytes
//	…  i64     created, nanoseconds since 1970 UTC
//	…  32 B    the snapshot it boots from; zero: none
//	…  u32     head + 1; 0: none
//	…  u32     the number the next checkpoint gets
//	…  u32     length, and the host's JSON about it
//	…  u32     length, and the JSON of its retention; 0: it has none of its own
//	…  u32     number of checkpoints; for each, numbers ascending:
//	           u32 number, u32 parent + 1 (0: none), 32 B snapshot, i64 created, i64 new bytes,
//	           u8 flags (1 exit code, 2 pinned, 4 fork point), i32 exit code if flagged,
//	           u8 length, VM's name and u32 number of what it was forked from, if flagged, u32 length, label
//	…  u32     number of ledger entries; if not 0:
//	           u64 seq of the first, 32 B hash of the one before it (zero if it is number 1),
//	           for each: i64 time, u8 length, kind, u32 length, data
//	           32 B hash of the last
//	…  u32     CRC-32C of all before
//
// The hashes of ledger entries in between follow from the chain; see LedgerEntry.Sum.
//
// # Note
//
// A chunk that says what changed about the names of snapshots. What is named is decided elsewhere; notes are for when
// that is lost. See Names for how they are put together.
//
//	 0 u8      'R'
//	 1 u8      version, 1
//	 2 u8      kind: 1 VM · 2 VM removed · 3 bundle · 4 bundle removed · 5 catalogue
//	 3 u8      0
//	 4 u64     sequence number: of two notes of one store the one with the larger is newer
//	12 i64     written, nanoseconds since 1970 UTC
//	20 16 B    which store's names these are; never zero
//	36         1: a History that lists only what is new, to the end
//	           2, 4: u8 length, name
//	           3: u8 length, name, 32 B snapshot, i64 created
//	           5: u64 covers, u16 part, u16 number of parts, u32 number of VMs; for each: u16 number of pieces, 32 B the hash of each;
//	              u32 number of bundles; for each as in 3
//	…  u8      0, only if the note would else be SlotBytes long
//
// A catalogue names all there is: a VM or bundle that isn't in it was removed before. Every note up to the number it
// covers is in it; later ones may be. Its histories are whole, but for
// the beginning of a long ledger, and are cut in pieces:
//
//	0  u8      'P'
//	1  u8      version, 1
//	2  …       the next at most 512 KiB of the history
//
// # Annotation
//
//	0  u8      version, 1
//	1  u16     number of packs P
//	3  16 B·P  pack ids, all different
//	…          for each named chunk in order (a patch's base first; of a record the roots that aren't zero):
//	           uvarint place: 0 unknown · 1 right behind the last known one · 2+i in pack i
//	           uvarint offset, if place ≥ 2
//	           uvarint bytes, if place ≥ 1
package manifest
