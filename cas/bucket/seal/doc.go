// Package seal encrypts what leaves for a bucket: it wraps a bucket.Bucket and is one itself, so that who keeps packs,
// catalogues and refs knows nothing of it. It also has the marker, flash.json, which says that a bucket is a remote of
// flash's and in which slots the key of a sealed one lies.
//
// Terms: the data key is 32 random bytes, one a remote, from which all other keys are derived. A slot is the data key
// wrapped by a secret: a passphrase or a key file. A segment is 64 KiB of an object's plain bytes, sealed for itself, so
// that a range is read without the rest. A plain key is the key the wrapper is asked for; a stored key is the one in the
// bucket below.
//
// All keys are relative to the remote's prefix, so a bucket may be copied to another place. All numbers are big-endian.
// BLAKE3 is the 32-byte hash; keyed(K, m) its keyed mode; derive(context, m) its key derivation.
//
// # Stored keys
//
// flash.json stays as it is, in name and content. Of every other plain key the last path element is replaced:
//
//	stored key = folders + "=" + hex(keyed(name key, plain key))
//	name key   = derive("flash 2026 seal 1 names", data key)
//
// so packs/5f….pack is stored as packs/=<64 hex digits>. Folders stay readable. List yields stored keys, which every method
// takes as well: a last element of '=' and 64 lower-case hex digits is taken for one. Objects whose last element isn't of
// that form are nobody's; List passes over them.
//
// # Objects, version 1
//
//	header, segment …
//
// Header, 40 bytes:
//
//	0  6  magic "FLSEAL"
//	6  1  version, 1
//	7  1  binary logarithm of the segment's plain bytes, 16; version 1 knows no other
//	8 32  salt
//
// Segment i, 16 to 65,552 bytes: the plain bytes from 65536·i on, encrypted by AES-256-GCM, and the 16-byte tag. Every
// segment but the last is full; the last is empty only when the object is, so the sizes of the plain and the stored object
// follow from each other.
//
//	nonce, 12 bytes:   0  3  zero
//	                   3  8  i
//	                  11  1  1 for the last segment, else 0
//	additional data:   none
//	object key       = keyed(content key, header ‖ stored key)
//	content key      = derive("flash 2026 seal 1 contents", data key)
//
// The object key binds the segments to the header and to the object's name, the nonce to their place, and its last byte to
// the object's end (the STREAM construction). A segment that was changed, moved, taken from another object or from an
// earlier state of the same one, and an object that was cut, extended or renamed, doesn't open: bucket.ErrIntegrity.
//
// The salt isn't random. Writers make it from what they write:
//
//	salt             = keyed(salt key, u64(bytes of stored key) ‖ stored key ‖ plain bytes)
//	salt key         = derive("flash 2026 seal 1 salts", data key)
//
// so an object key never seals two contents, even where the random generator repeats itself (flash may well run in a
// machine that is rewound). The same bytes under the same key are the same sealed bytes, in every try and on every host:
// what is put twice is recognised by the bucket below, without a second kind of comparison here. Readers take any salt.
//
// # Marker, format 1
//
// flash.json, JSON of at most 64 KiB. Unknown fields, values out of bounds and a missing "flash" or "format" are refused.
//
//	flash    "remote"
//	format   1
//	id       16 random bytes in hex: tells remotes apart
//	created  RFC 3339
//	seal     absent: the remote isn't sealed. Else
//	  cipher   "aes-256-gcm"
//	  check    base64 of 16 bytes: the first of keyed(derive("flash 2026 seal 1 check", data key), id)
//	  slots    1 to 16 of
//	    id        8 hex digits
//	    kind      "passphrase" or "key-file"
//	    label     what people call it
//	    created   RFC 3339
//	    argon2id  of a passphrase: time 1–32, memory_kib 8192–1048576, threads 1–64, time · memory_kib at most 8 GiB
//	    salt      base64 of 32 bytes
//	    wrapped   base64 of 48 bytes: the data key, sealed by AES-256-GCM with the slot key, nonce zero,
//	              additional data "flash 2026 seal 1 slot " ‖ id of the remote (in hex) ‖ " " ‖ kind
//
//	slot key of a passphrase = argon2id(passphrase, salt, time, memory_kib, threads), 32 bytes
//	slot key of a key file   = derive("flash 2026 seal 1 key file", 32 bytes of the file ‖ salt)
//
// A key file is text: lines that begin with '#' and empty ones are passed over; the one that remains is "FLASH-KEY-1 " and
// base64 of 32 bytes. The data key is exported as such a text too. It opens the remote with every slot gone, and without
// the marker.
//
// Slots are changed by writing the marker anew, on the condition that it is the one that was read. Objects stay as they
// are.
//
// # Threat model
//
// The adversary keeps the bucket, or reads or changes it, or the way there. Trusted are the host, who holds a slot's
// secret, and AES-256-GCM, BLAKE3 and argon2id.
//
// He learns: how many objects there are and in which folders, so about how many VMs, packs, hosts and pushes in flight; the
// ids of hosts (random) in the names of folders; sizes to the byte; when each object is written, read and removed, from
// which address, and which ranges of a pack (a guest's page faults, in units of 64 KiB). Sizes are not padded. That an
// object was written again with the very bytes it had.
//
// He does not learn: contents, hashes of chunks, names of VMs, labels and commands; whether something known to him is
// stored: names and bytes depend on the data key, so the same content in two remotes has nothing in common but its length.
//
// He can: remove or withhold objects (what is missing is reported as missing; keep a second remote); undo: give out an
// older state of an object, the marker included. An older ref is noticed by a host that has seen a newer one (its epoch and
// number went back, store/offsite), not by one that comes for the first time. Old markers keep old slots: after a
// passphrase is known to others, rotating it keeps out who hasn't copied the marker or the data key before. Only a new
// remote has a new data key.
//
// He can't: change, swap, cut, extend or rename an object, or make one up, without its being refused when it is read (a
// range: the segments that are read); put a slot of his own into the marker that our secrets open; make a host take a
// sealed remote for one that isn't sealed, or for another one, as long as the host compares the marker with what it knows
// (Known). argon2id's parameters are bounded, so a marker can't exhaust the host that opens it.
//
// A weak passphrase is guessed from the marker alone, at the pace argon2id allows. A key file isn't.
//
// # Memory
//
// Secrets come as []byte and are cleared by who made them (Secret.Wipe, Keys.Wipe). Derived keys inside a wrapped bucket
// and the cipher's tables live as long as it does. Nothing of a secret is in an error, a log or a %v.
package seal
