package bundle

import (
	"bytes"
	"fmt"
	"strings"
)

// The initrd is a cpio archive in the "newc" format, the one the kernel unpacks. Each entry:
//
//	offset width  field (all numbers are 8 hexadecimal digits)
//	0      6      "070701"
//	6      8      inode number
//	14     8      mode, with the type of file
//	22     8 8    uid, gid
//	38     8      number of links
//	46     8      modification time
//	54     8      length of the data
//	62     8 8    major, minor of the device that holds the file
//	78     8 8    major, minor of the device that the file is
//	94     8      length of the name with its terminating zero
//	102    8      checksum; zero in this format
//	110           name, zeros up to a multiple of 4, data, zeros up to a multiple of 4
//
// The last entry is named "TRAILER!!!". Inode numbers count from 1 and times are zero: equal files give equal archives.

// Types of file in a cpio mode, as in struct stat.
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioChar = 0o020000
)

// cpioEntry is one file of an archive.
type cpioEntry struct {
	name         string // without a leading slash
	mode         uint32 // type and permissions
	major, minor uint32 // of a device
	data         []byte
}

// encodeCpio writes entries in the order given. A folder must come before what is in it.
func encodeCpio(entries []cpioEntry) ([]byte, error) {
	var total int
	folders := map[string]bool{"": true}
	for _, e := range entries {
		parent := e.name[:max(0, strings.LastIndexByte(e.name, '/'))]
		switch {
		case e.name == "" || e.name[0] == '/' || len(e.name) > 255:
			return nil, fmt.Errorf("initrd: file name %q", e.name)
		case !folders[parent]:
			return nil, fmt.Errorf("initrd: %s comes before its folder", e.name)
		case len(e.data) > 1<<30:
			return nil, fmt.Errorf("initrd: %s has %d bytes", e.name, len(e.data))
		}
		if e.mode&0o170000 == cpioDir {
			folders[e.name] = true
		}
		total += 110 + len(e.name) + len(e.data) + 8
	}
	var out bytes.Buffer
	out.Grow(total + 128)
	for i, e := range append(entries[:len(entries):len(entries)], cpioEntry{name: "TRAILER!!!"}) {
		ino, links := i+1, 1
		if e.mode == 0 {
			ino = 0
		}
		if e.mode&0o170000 == cpioDir {
			links = 2
		}
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			ino, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0)
		out.WriteString(e.name)
		out.WriteByte(0)
		padTo4(&out)
		out.Write(e.data)
		padTo4(&out)
	}
	return out.Bytes(), nil
}

func padTo4(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}
