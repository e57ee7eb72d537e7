package nbd

import (
	"errors"
	"fmt"
	"io"

	"flash/blockdelta"
)

// errAborted: the client ended the handshake properly.
var errAborted = errors.New("the client aborted the handshake")

// negotiation is one handshake.
//
//	hello ──▶ options ──GO, EXPORT_NAME──▶ transmission
//	             └──ABORT, anything wrong──▶ end
type negotiation struct {
	conn     io.ReadWriter
	exports  exports
	noZeroes bool
}

// exports is what a handshake asks of a server.
type exports interface {
	export(name string) (*blockdelta.Overlay, bool)
	names() []string
}

// run shakes hands and gives the overlay the client chose.
func (n *negotiation) run() (*blockdelta.Overlay, error) {
	if err := n.hello(); err != nil {
		return nil, err
	}
	for range maxOptions {
		option, data, err := n.readOption()
		if err != nil {
			return nil, err
		}
		var chosen *blockdelta.Overlay
		switch option {
		case optExportName:
			return n.exportName(string(data))
		case optGo, optInfo:
			chosen, err = n.info(option, data)
		case optList:
			err = n.list(data)
		case optAbort:
			_ = n.reply(option, repAck, nil) // the client may be gone already
			return nil, errAborted
		default: // structured replies, TLS, metadata contexts, extended headers, and what is yet to be invented
			err = n.reply(option, repErrUnsup, nil)
		}
		if err != nil || chosen != nil {
			return chosen, err
		}
	}
	return nil, fmt.Errorf("the client sent %d options and chose no export", maxOptions)
}

func (n *negotiation) hello() error {
	p := be.AppendUint64(nil, magicServer)
	p = be.AppendUint64(p, magicOption)
	p = be.AppendUint16(p, handshakeFixedNewstyle|handshakeNoZeroes)
	if _, err := n.conn.Write(p); err != nil {
		return fmt.Errorf("send the greeting: %w", err)
	}
	var answer [4]byte
	if _, err := io.ReadFull(n.conn, answer[:]); err != nil {
		return fmt.Errorf("read the client's flags: %w", err)
	}
	flags := be.Uint32(answer[:])
	if flags&handshakeFixedNewstyle == 0 || flags&^(handshakeFixedNewstyle|handshakeNoZeroes) != 0 {
		return fmt.Errorf("the client's flags are %#x: it must speak fixed newstyle and nothing unknown", flags)
	}
	n.noZeroes = flags&handshakeNoZeroes != 0
	return nil
}

func (n *negotiation) readOption() (option uint32, data []byte, err error) {
	var header [optionHeaderBytes]byte
	if _, err := io.ReadFull(n.conn, header[:]); err != nil {
		return 0, nil, fmt.Errorf("read an option: %w", err)
	}
	if magic := be.Uint64(header[0:]); magic != magicOption {
		return 0, nil, fmt.Errorf("option with magic %#x", magic)
	}
	option, length := be.Uint32(header[8:]), be.Uint32(header[12:])
	if length > maxOptionBytes {
		return 0, nil, fmt.Errorf("option %d has %d bytes of data, more than %d", option, length, maxOptionBytes)
	}
	data = make([]byte, length)
	if _, err := io.ReadFull(n.conn, data); err != nil {
		return 0, nil, fmt.Errorf("read the %d bytes of option %d: %w", length, option, err)
	}
	return option, data, nil
}

func (n *negotiation) reply(option, kind uint32, data []byte) error {
	p := be.AppendUint64(make([]byte, 0, 20+len(data)), magicOptionReply)
	p = be.AppendUint32(p, option)
	p = be.AppendUint32(p, kind)
	p = be.AppendUint32(p, uint32(len(data)))
	if _, err := n.conn.Write(append(p, data...)); err != nil {
		return fmt.Errorf("answer option %d: %w", option, err)
	}
	return nil
}

// exportName chooses without a way to say no: the specification has the server close the connection.
func (n *negotiation) exportName(name string) (*blockdelta.Overlay, error) {
	overlay, ok := n.exports.export(name)
	if !ok {
		return nil, fmt.Errorf("there is no export %.64q", name)
	}
	p := be.AppendUint64(nil, overlay.Bytes())
	p = be.AppendUint16(p, transmissionFlags)
	if !n.noZeroes {
		p = append(p, make([]byte, exportZeroPad)...)
	}
	if _, err := n.conn.Write(p); err != nil {
		return nil, fmt.Errorf("answer EXPORT_NAME: %w", err)
	}
	return overlay, nil
}

// info answers INFO and GO. Its data: length of the name 4, name, count 2, count × information type 2.
// An overlay is chosen only by a GO that was answered in full.
func (n *negotiation) info(option uint32, data []byte) (*blockdelta.Overlay, error) {
	name, wanted, err := parseInfo(data)
	if err != nil {
		return nil, n.reply(option, repErrInvalid, []byte(err.Error()))
	}
	overlay, ok := n.exports.export(name)
	if !ok {
		return nil, n.reply(option, repErrUnknown, fmt.Appendf(nil, "there is no export %.64q", name))
	}
	p := be.AppendUint16(nil, infoExport)
	p = be.AppendUint64(p, overlay.Bytes())
	p = be.AppendUint16(p, transmissionFlags)
	if err := n.reply(option, repInfo, p); err != nil {
		return nil, err
	}
	if wanted[infoBlockSize] {
		p = be.AppendUint16(nil, infoBlockSize)
		p = be.AppendUint32(p, blockSizeLeast)
		p = be.AppendUint32(p, blockdelta.BlockBytes)
		p = be.AppendUint32(p, MaxRequestBytes)
		if err := n.reply(option, repInfo, p); err != nil {
			return nil, err
		}
	}
	if err := n.reply(option, repAck, nil); err != nil || option == optInfo {
		return nil, err
	}
	return overlay, nil
}

func parseInfo(data []byte) (name string, wanted map[uint16]bool, err error) {
	if len(data) < 6 {
		return "", nil, fmt.Errorf("%d bytes are too few for a name and a count", len(data))
	}
	nameBytes := be.Uint32(data)
	if nameBytes > maxNameBytes || int(nameBytes) > len(data)-6 {
		return "", nil, fmt.Errorf("the name's length %d doesn't fit in %d bytes", nameBytes, len(data))
	}
	name, data = string(data[4:4+nameBytes]), data[4+nameBytes:]
	count := int(be.Uint16(data))
	data = data[2:]
	if len(data) != 2*count {
		return "", nil, fmt.Errorf("%d information requests don't take %d bytes", count, len(data))
	}
	wanted = make(map[uint16]bool)
	for ; len(data) > 0; data = data[2:] {
		wanted[be.Uint16(data)] = true
	}
	return name, wanted, nil
}

// list names the exports that are there now.
func (n *negotiation) list(data []byte) error {
	if len(data) > 0 {
		return n.reply(optList, repErrInvalid, nil)
	}
	for _, name := range n.exports.names() {
		p := be.AppendUint32(nil, uint32(len(name)))
		if err := n.reply(optList, repServer, append(p, name...)); err != nil {
			return err
		}
	}
	return n.reply(optList, repAck, nil)
}
