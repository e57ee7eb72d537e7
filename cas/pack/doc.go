// Package pack encodes and decodes pack files: many chunks, each in a record that describes itself.
//
// It is pure: it works on byte slices, io.ReaderAt and io.Writer, and knows not where a pack lives.
//
// Terms: a record is one chunk with its framing. An open pack is a header and records, and may end in a torn record.
// A sealed pack ends with a footer and never changes again; its content hash is its name wherever it is stored.
//
// # Format, version 1
//
// All numbers are little-endian. CRC is CRC-32C (Castagnoli). A sealed pack is
//
//	header, record …, entry …, trailer
//
// Header, 64 bytes:
//
//	 0  8  magic "FLSHPACK"
//	 8  2  version, 1
//	10  2  header bytes, 64
//	12  4  key id: which key names the chunks (cas.KeyID); 0 means plain BLAKE3
//	16 16  pack id, random, not zero
//	32  8  creation time, nanoseconds since 1970 UTC
//	40 20  zero
//	60  4  CRC of bytes 0–59
//
// Record, 48 bytes and its payload:
//
//	 0  1  marker 0xC5
//	 1  1  low four bits: kind (1 data, 2 node, 3 snapshot, 4 note); high four bits: codec (0 raw, 1 s2 block, 2 zstd frame)
//	 2  1  low two bits: encryption (0 none); the others zero
//	 3  3  plain bytes, 1 to 1 MiB
//	 6  3  stored bytes, the length of the payload
//	 9  3  named bytes: how many leading plain bytes the hash covers; 1 to plain bytes
//	12  4  CRC of bytes 0–11, 16–47 and the payload
//	16 32  hash: the chunk's name
//	48  …  payload
//
// A raw payload is as long as the plain bytes. A compressed one saves at least 7 %, or the encoder would have stored it
// raw. Encryption other than 0 is reserved: the payload will be a 4-byte key id, a 24-byte nonce, the sealed bytes and a
// 16-byte tag. Readers of version 1 refuse it.
//
// Entry, 40 bytes, one a record, ascending by hash, then by offset:
//
//	 0 32  hash
//	32  4  offset of the record's first byte
//	36  4  length of the record, framing included
//
// The whole hash is there, not a prefix, so that a collector learns what a pack holds from its footer alone, also where
// reading is paid by the byte. It costs 0.8 % of a pack of compressed pages.
//
// Trailer, 64 bytes:
//
//	 0  4  number of entries
//	 4  4  offset of the first entry, which is where the records end
//	 8  8  sum of the records' plain bytes
//	16 32  content hash: plain BLAKE3-256 of all bytes before this field
//	48  4  CRC of the entries
//	52  4  CRC of bytes 0–51
//	56  8  magic "FLSHSEAL"
//
// # Invariants
//
// Encoding and decoding are a pair: what the encoder can't produce the decoder refuses. Every length is bounded before
// it is used to allocate. A record is accepted only when its CRC is right; its plain bytes are handed out only when they
// hash to its name (I1).
package pack

import "errors"

var (
	// ErrDamaged: the bytes are not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrUnsupported: written by another version, or with a feature this one hasn't.
	ErrUnsupported = errors.New("not supported by this version")
)
