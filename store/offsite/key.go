package offsite

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/zeebo/blake3"

	"flash/cas"
	"flash/cas/pack"
)

const (
	refPrefix    = "vms/"
	holdPrefix   = "holds/"
	leasePrefix  = "leases/"
	condemnedKey = "gc/condemned.json"
)

func refKey(vm string) string                 { return refPrefix + escape(vm) }
func holdKey(host HostID, vm string) string   { return holdKeyOf(host, escape(vm)) }
func holdKeyOf(host HostID, id string) string { return holdPrefix + host.String() + "/" + id }
func leaseKey(host HostID, id string) string  { return leasePrefix + host.String() + "/" + id }
func packKey(contentHash cas.Hash) string     { return "packs/" + pack.FileName(contentHash) }

// maxEscaped leaves room for what a folder as a bucket adds to a file's name, of at most 255 bytes.
const maxEscaped = 180

// escape makes a key's last element of a VM's name: a–z, 0–9, '-', '_' and single dots inside stay, every other byte is
// ~XX in hex. Capitals are escaped too, for there are file systems that don't tell Agent from agent. A long one is cut,
// and a hash of the name makes it unique; nobody reads a name back from a key, for the object says whose it is.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_',
			c == '.' && i > 0 && i < len(name)-1 && name[i-1] != '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "~%02x", c)
		}
	}
	if b.Len() <= maxEscaped {
		return b.String()
	}
	sum := blake3.Sum256([]byte(name))
	return b.String()[:100] + "~~" + hex.EncodeToString(sum[:16])
}
