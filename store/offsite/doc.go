// Package offsite keeps VMs' histories in a bucket: push and pull, claims of several hosts, replication, collection there.
//
// Terms: a ref is a VM as the bucket has it: its history, and who may move it. Its owner is the one host that may; taking
// over makes another host that, in a later epoch. A lease names the packs that a push in flight relies on. A hold names
// what a host needs of the bucket and hasn't itself: what it has pulled lazily. A pack is condemned when nothing reaches it.
// Near is this host's chunk store, far the bucket's packs (cas/remote).
//
// # Objects, below the remote's prefix
//
//	packs/…  catalog/…          cas/remote's
//	vms/<vm>                    a ref; moved only by a put on the condition that it is as it was read
//	leases/<host id>/<random>   put before a push relies on anything, renewed, removed at its end
//	holds/<host id>/<vm>        of a pull; <vm> is the VM's name on that host
//	holds/<host id>/~needed     what a Release has found to be needed
//	sets/<vm>                   what restores of the VM's newest checkpoints touched first; advice
//	gc/condemned.json           who collects, and what is condemned; moved only on a condition
//
// <vm> is the name with every byte but a–z, 0–9, '-', '_' and a single '.' inside as ~XX, two hex digits; one that is longer
// than 180 bytes then is cut to 100, followed by "~~" and the first 16 bytes of the BLAKE3 of the name, in hex. Nobody reads
// a name back from a key. A host id is 16 random bytes in hex.
//
// # Ref, version 1
//
// All numbers are little-endian, times are nanoseconds since 1970 UTC by the owner's clock.
//
//	 0  8  magic "FLASHREF"
//	 8  2  version, 1
//	10  1  state, 1: live, 2: removed (a tombstone, which has no history)
//	11  1  codec of the history, 0: as it is, 1: one zstd frame
//	12  4  bytes of the history (store/manifest), at most 256 times those of its frame
//	16  4  bytes of it as it is stored here
//	20 16  the owner's host id, not zero
//	36  8  epoch, from 1; grows with every change of owner, and goes on after a tombstone, as long as that is there
//	44  8  seq, from 1; grows with every write
//	52  8  when the owner became that
//	60  8  when it was written
//	68  1  length of the owner's name, at most 255
//	69  1  length of the VM's name, 1 to 128
//	70  6  zero
//	76  …  the owner's name, the VM's name, the history
//	 … 32  BLAKE3-256 of all before
//
// # Leases, holds, condemned packs and working sets, format 1
//
// Each is one JSON object of at most 16 MiB, with "flash", which says the kind, and "format", 1. Unknown fields are refused, as
// is any other format. Hosts and packs are 32 hex digits, hashes 64, times RFC 3339.
//
//	"flash":"lease"         host, host_name, flashvm, began, renewed (how often), packs (relied on, ascending)
//	"flash":"hold"          host, host_name, flashvm, since, snapshots (with all they reach), packs (whole)
//	"flash":"condemned"     collector: null, or host, host_name, run (random), began, renewed;
//	                        tombstones: VMs whose refs, removed long ago, are being deleted; absent: none;
//	                        packs: each pack, content (hash that names the object), bytes, since, state ("condemned" or "deleting")
//	"flash":"working-sets"  sets, at most 16: each snapshot, distances (of pages of memory, each from the one before, in the order
//	                        of first touch). Advice: sets/<vm> is put over whatever is there
//
// # Invariants
//
//   - A ref is visible only after everything it reaches is in the catalogue; so a copy of the bucket at any instant restores
//     every ref that it shows.
//   - A ref is moved only by its owner, or by who becomes that; only onwards from what it was: ErrRolledBack.
//   - A VM is named on this host only when all of it is near, or is far and held.
//   - A far pack is removed only if no ref, hold or living lease needs it, as read after it was published as being removed.
//   - Nothing is remembered here that counts: after any kill, doing it again does what is left.
//
// # Who sees whom
//
// Push: lease → list of condemned packs → catalogue → upload → ref → the lease goes. Pull: ref → hold → is the ref still
// what it was → import. Collection: list ("deleting") → leases → refs → holds → remove → list. Two who write a flag each and
// then read the other's can't both miss the other's: a push that relies on a pack which is being removed either is seen by
// the collection, or sees it and waits. In the same way a tombstone is deleted, which the push of a VM of that name would
// replace. What protects something is put before that goes which has protected it, and is read
// after that (a lease, then its ref; a ref, then its hold), so that no reading falls between.
//
// A lease or a collection that hasn't changed for leaseTime, by the clock of who watches and since its first sight of that
// state, is dead. A dead lease is removed before it is passed over, and a push asks for its lease right before it names
// anything, on the condition that it is as it was left: one that was taken for dead learns of it, and begins again. Between
// that question and the naming there is one request; should a host sleep just there, its push puts the packs again.
//
// # Lock order
//
//	turns → holdMu → mu
//	heldLease.mu and collection.mu are held across the put that renews, so that there is one at a time
//
// completeSet.mu, watch.mu and mu are leaves, never held across a request.
package offsite
