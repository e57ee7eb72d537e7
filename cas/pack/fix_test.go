package pack_test

import (
	"encoding/binary"
	"hash/crc32"

	"flash/cas"
	"flash/cas/pack"
)

// fixRecord gives p the marker, the payload length, the CRC and, if raw, the name it should have.
func fixRecord(p []byte) {
	payload := p[pack.RecordHeaderBytes:]
	p[0] = 0xC5
	p[2] = 0
	p[6], p[7], p[8] = byte(len(payload)), byte(len(payload)>>8), byte(len(payload)>>16)
	if named := int(p[9]) | int(p[10])<<8 | int(p[11])<<16; p[1]>>4 == 0 && named <= len(payload) {
		copy(p[3:6], p[6:9])
		sum := cas.NewHasher(nil).Sum(payload[:named])
		copy(p[16:48], sum[:])
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	crc := crc32.Update(crc32.Update(0, table, p[:12]), table, p[16:])
	binary.LittleEndian.PutUint32(p[12:], crc)
}
