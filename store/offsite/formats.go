// # Keys
//
//	vms/<name>                refs
//	holds/<host>/<name>       holds, one a VM that was pulled lazily
//	holds/<host>/~needed      a hold of what the host still needs of VMs that it has no more (Release)
//	leases/<host>/<random>    leases
//	gc/condemned.json         the packs that are to go
//
// host is a HostID in hex. name is a VM's, escaped (key.go); nobody reads it back, for the object says whose it is.
// What lies in packs/ and catalog/ is cas/remote's, flash.json and encryption are cas/bucket/seal's.
//
// # Ref, version 1
//
// All numbers are little-endian, times nanoseconds since 1970 UTC.
//
//	 0  8  magic "FLASHREF"
//	 8  2  version, 1
//	10  1  state: 1 the VM is there, 2 it was removed; a removed one keeps its epoch, so that the epochs go on where they were
//	11  1  codec of the history: 0 as it is, 1 a zstd frame
//	12  4  H, plain bytes of the history; 0 if and only if it was removed; at most 1 GiB, and 256 times S
//	16  4  S, stored bytes of the history
//	20 16  the owner's HostID, not zero
//	36  8  epoch, from 1: grows with every change of owner
//	44  8  seq, from 1: grows with every write
//	52  8  time since which it is owned
//	60  8  time of the last push
//	68  1  length of the owner's name
//	69  1  length of the VM's name, 1 to 128
//	70  6  zero
//	76  …  the owner's name, the VM's name, the history (store/manifest, # History)
//	 …  32  plain BLAKE3-256 of all before
//
// # Leases, holds and condemned packs, format 1
//
// Each is one JSON object of at most 16 MiB, with "flash", which says the kind, and "format", 1. Unknown fields are
// refused. Hosts and packs are 32 hex digits, hashes 64, times RFC 3339.
//
//	"flash":"lease"      host, host_name, flashvm, began, renewed (how often), packs (relied on, ascending)
//	"flash":"hold"       host, host_name, flashvm, since, snapshots (with all they reach), packs (whole)
//	"flash":"condemned"  collector: null, or host, host_name, run (random), began, renewed;
//	                     packs: each pack, content (hash that names the object), bytes, since, state ("condemned" or "deleting")
package offsite
