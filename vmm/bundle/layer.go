package bundle

import (
	"archive/tar"
	"fmt"
	"path"
	"strings"
)

// Applying a layer follows the OCI image specification, "Image Layer Filesystem Changeset":
//
//	.wh.NAME      NAME of the layers below is gone
//	.wh..wh..opq  everything in this folder of the layers below is gone
//	.wh..wh.…     of another file system driver; without meaning here
//
// Whiteouts take away what lower layers brought, never what their own layer brings, wherever in the layer they stand.
// Names lead through symbolic links as they would inside the container: a link that is absolute, or has "..", is
// resolved below the tree's root. An entry whose own name has a ".." that leads out is refused.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh."
)

// layerLimits bounds what an image may bring. Reaching one is an error.
type layerLimits struct {
	entries int   // files of any kind, in all layers
	bytes   int64 // of file contents, in all layers
}

// defaultLimits is far above real images. A disk size that was asked for is a narrower bound.
var defaultLimits = layerLimits{entries: 4 << 20, bytes: 64 << 30}

const (
	maxNameBytes  = 4096     // PATH_MAX
	maxXattrs     = 128      // of one file
	maxXattrBytes = 64 << 10 // of one value, the kernel's own bound
)

// entryKind says what a name of a layer asks for.
type entryKind int

const (
	entryFile entryKind = iota
	entryWhiteout
	entryOpaque
	entryNothing
)

// parseEntryName gives the clean path of an entry, relative to the root ("" for the root itself), and what it is.
// The path of a whiteout is what is to go, that of an opaque one its folder.
func parseEntryName(name string) (clean string, kind entryKind, err error) {
	if name == "" || len(name) > maxNameBytes || strings.ContainsRune(name, 0) {
		return "", entryNothing, fmt.Errorf("%w: a file is named %.60q", ErrBadImage, name)
	}
	clean = path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", entryNothing, fmt.Errorf("%w: %q leads out of it", ErrBadImage, name)
	}
	if clean == "." {
		return "", entryFile, nil
	}
	dir, base := path.Split(clean)
	switch {
	case base == whiteoutOpaque:
		return strings.TrimSuffix(dir, "/"), entryOpaque, nil
	case strings.Contains("/"+clean, "/"+whiteoutMeta):
		return clean, entryNothing, nil
	case strings.HasPrefix(base, whiteoutPrefix):
		if base = base[len(whiteoutPrefix):]; base == "" || base == "." || base == ".." {
			return "", entryNothing, fmt.Errorf("%w: whiteout %q names nothing", ErrBadImage, name)
		}
		return dir + base, entryWhiteout, nil
	}
	return clean, entryFile, nil
}

// layerXattrs picks the extended attributes that mean something inside the guest. Labels of this or that host's security
// module and the bookkeeping of overlay file systems are left out.
func layerXattrs(h *tar.Header) (map[string][]byte, error) {
	const prefix = "SCHILY.xattr."
	var found map[string][]byte
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || !(strings.HasPrefix(name, "user.") || name == "security.capability" || strings.HasPrefix(name, "system.posix_acl_")) {
			continue
		}
		if found == nil {
			found = map[string][]byte{}
		}
		if found[name] = []byte(value); len(found) > maxXattrs || len(value) > maxXattrBytes || len(name) > 255 {
			return nil, fmt.Errorf("%w: %s has too many or too long extended attributes", ErrBadImage, h.Name)
		}
	}
	return found, nil
}
