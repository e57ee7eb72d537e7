package memtest

import (
	"strconv"

	"github.com/zeebo/xxh3"
)

// WrittenByte is the offset in a page of the byte that Child.Write changes.
const WrittenByte = 100

// HashPages is what a child says it read.
func HashPages(b []byte) string { return strconv.FormatUint(xxh3.Hash(b), 16) }
