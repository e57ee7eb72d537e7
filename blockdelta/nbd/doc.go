// Package nbd serves overlays to machines in other processes over the Network Block Device protocol.
//
// It speaks the fixed newstyle of the NBD protocol as its specification describes it
// (https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md), on a unix socket, without TLS, structured
// replies or extended headers; a client that asks for those is told that they are unsupported and goes on without.
// All numbers are big-endian.
//
//	handshake, server first
//	   0  8  "NBDMAGIC"                        16  2  1 fixed newstyle | 2 no zeroes
//	   8  8  "IHAVEOPT"
//	client's answer
//	   0  4  1 fixed newstyle | 2 no zeroes
//	option, client                             reply, server
//	   0  8  "IHAVEOPT"                           0  8  0x0003e889045565a9
//	   8  4  option                               8  4  option
//	  12  4  length of data                      12  4  reply type; errors have bit 31
//	  16  …  data                                16  4  length of data
//	                                             20  …  data
//	request, client                            simple reply, server
//	   0  4  0x25609513                           0  4  0x67446698
//	   4  2  command flags                        4  4  error; 0: none
//	   6  2  command                              8  8  the request's cookie
//	   8  8  cookie                              16  …  data of a READ that succeeded
//	  16  8  offset
//	  24  4  length
//	  28  …  data of a WRITE
//
// What may be relied on:
//
//   - FLUSH and FUA are answered from memory. What a guest wrote becomes durable with a checkpoint, not before: an
//     overlay doesn't outlive this process anyway, and the pause of a checkpoint contains two flushes.
//   - Requests of a connection are handled at once, in any order, and answered as they finish, as the specification
//     allows; no request waits for another one's base, trim or zeroes. Only the bounds below make a client wait.
//   - All connections to an export see the same disk at once (CAN_MULTI_CONN).
//   - The peer is a machine process that a hostile guest may have taken over. Every length is checked before it is
//     used, memory is bounded for each connection and for all, and a peer that breaks the protocol loses its connection.
//
// Lock order: none is held while another is taken.
package nbd

import "time"

// Limits of a server. A peer that reaches one waits, unless it says otherwise.
const (
	MaxRequestBytes      = 32 << 20         // longest READ and WRITE; told to the client, longer ones are refused
	maxConnInFlightBytes = 32 << 20         // buffers of one connection's requests
	maxConnRequests      = 128              // requests of one connection being handled
	maxConns             = 16               // connections; more are closed at once
	maxOptionBytes       = 8 << 10          // a name of 4096 bytes with room; longer data ends the connection
	maxOptions           = 64               // options before the transmission; more end the connection
	maxNameBytes         = 4096             // the specification's limit on strings
	handshakeDeadline    = 10 * time.Second // from the connection to its last option; then it ends
)
