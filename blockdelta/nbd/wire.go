package nbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"flash/blockdelta"
)

var be = binary.BigEndian

const (
	magicServer      = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption      = 0x49484156454f5054 // "IHAVEOPT"
	magicOptionReply = 0x0003e889045565a9
	magicRequest     = 0x25609513
	magicSimpleReply = 0x67446698

	optionHeaderBytes  = 16
	requestHeaderBytes = 28
	replyHeaderBytes   = 16

	handshakeFixedNewstyle = 1 << 0
	handshakeNoZeroes      = 1 << 1

	optExportName = 1
	optAbort      = 2
	optList       = 3
	optInfo       = 6
	optGo         = 7

	repAck         = 1
	repServer      = 2
	repInfo        = 3
	repErrUnsup    = 1<<31 | 1
	repErrInvalid  = 1<<31 | 3
	repErrUnknown  = 1<<31 | 6
	infoExport     = 0
	infoBlockSize  = 3
	exportZeroPad  = 124 // after the answer to EXPORT_NAME, unless both sides said no zeroes
	blockSizeLeast = 1   // the overlay takes any offset

	transmitHasFlags        = 1 << 0
	transmitSendFlush       = 1 << 2
	transmitSendFUA         = 1 << 3
	transmitSendTrim        = 1 << 5
	transmitSendWriteZeroes = 1 << 6
	transmitCanMultiConn    = 1 << 8
	transmissionFlags       = transmitHasFlags | transmitSendFlush | transmitSendFUA | transmitSendTrim |
		transmitSendWriteZeroes | transmitCanMultiConn

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisconnect  = 2
	cmdFlush       = 3
	cmdTrim        = 4
	cmdWriteZeroes = 6

	flagFUA    = 1 << 0
	flagNoHole = 1 << 1 // WRITE_ZEROES only. Zeros never take space here and never fail for want of it, as it asks
)

// wireError is an error number of the protocol; they are Linux's, on every system.
type wireError uint32

const (
	wireOK       wireError = 0
	wireEIO      wireError = 5
	wireEINVAL   wireError = 22
	wireENOSPC   wireError = 28
	wireShutdown wireError = 108
)

// wireErrorOf tells a client what went wrong, as far as the protocol can.
func wireErrorOf(err error) wireError {
	switch {
	case err == nil:
		return wireOK
	case errors.Is(err, syscall.ENOSPC):
		return wireENOSPC
	case errors.Is(err, blockdelta.ErrRange):
		return wireEINVAL
	case errors.Is(err, blockdelta.ErrClosed), errors.Is(err, context.Canceled):
		return wireShutdown
	default:
		return wireEIO
	}
}

// request is a request's header.
type request struct {
	flags   uint16
	command uint16
	cookie  uint64
	offset  uint64
	length  uint32
}

// decodeRequest takes a header apart; whether its fields make sense is check's to say.
func decodeRequest(p *[requestHeaderBytes]byte) (request, error) {
	if magic := be.Uint32(p[0:]); magic != magicRequest {
		return request{}, fmt.Errorf("request with magic %#x", magic)
	}
	return request{be.Uint16(p[4:]), be.Uint16(p[6:]), be.Uint64(p[8:]), be.Uint64(p[16:]), be.Uint32(p[24:])}, nil
}

// check tells whether a request may be carried out on a disk of that size.
func (r request) check(diskBytes uint64) wireError {
	allowed := uint16(flagFUA)
	beyond := wireEINVAL // the specification: ENOSPC for what would write, EINVAL for the rest
	switch r.command {
	case cmdRead, cmdTrim:
	case cmdWrite:
		beyond = wireENOSPC
	case cmdWriteZeroes:
		beyond = wireENOSPC
		allowed |= flagNoHole
	case cmdFlush:
		if r.offset != 0 || r.length != 0 {
			return wireEINVAL
		}
	default:
		return wireEINVAL
	}
	switch {
	case r.flags&^allowed != 0:
		return wireEINVAL
	case (r.command == cmdRead || r.command == cmdWrite) && r.length > MaxRequestBytes:
		return wireEINVAL
	case r.offset > diskBytes || uint64(r.length) > diskBytes-r.offset: // no sum, so nothing wraps
		return beyond
	}
	return wireOK
}

// putReply encodes the header of a simple reply.
func putReply(p []byte, cookie uint64, e wireError) {
	be.PutUint32(p[0:], magicSimpleReply)
	be.PutUint32(p[4:], uint32(e))
	be.PutUint64(p[8:], cookie)
}
