package uffd

import (
	"encoding/binary"

	"flash/memtrack"
)

const (
	pageBytes = memtrack.PageBytes

	ioctlNew      = 0xaa00     // _IO(0xaa, 0x00), of /dev/userfaultfd; the argument is userfaultfd(2)'s flags
	ioctlAPI      = 0xc018aa3f // _IOWR(0xaa, 0x3f, 24 bytes)
	ioctlRegister = 0xc020aa00 // _IOWR(0xaa, 0x00, 32 bytes)
	ioctlWake     = 0x8010aa02 // _IOR(0xaa, 0x02, 16 bytes)

	apiVersion = 0xaa

	featurePagefaultWP   = 1 << 0
	featureMissingShmem  = 1 << 5
	featureWPShmem       = 1 << 12
	featureWPUnpopulated = 1 << 13
	featureWPAsync       = 1 << 15

	featuresProtect = featurePagefaultWP | featureWPShmem | featureWPUnpopulated | featureWPAsync

	modeMissing = 1 << 0
	modeWP      = 1 << 1

	eventPagefault = 0x12
	messageBytes   = 32
)

func encodeWords(words ...uint64) []byte {
	b := make([]byte, 0, 8*len(words))
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// faultAddress gives the address of a page fault message; false for any other event.
func faultAddress(message []byte) (uint64, bool) {
	return binary.NativeEndian.Uint64(message[16:]), message[0] == eventPagefault
}

// registration is the features and the mode of memory that is served, protected, or both.
func registration(missing, protect bool) (features, mode uint64) {
	if missing {
		features, mode = featureMissingShmem, modeMissing
	}
	if protect {
		features, mode = features|featuresProtect, mode|modeWP
	}
	return features, mode
}
