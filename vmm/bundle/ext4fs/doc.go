// Package ext4fs tells which files differ between two images of one ext4 file system, without mounting either.
//
// Terms: a block is a file system block, 4096 bytes, and the n-th slot of the disk. A side is one of the two disks, as it
// is once its journal is replayed. An extent is a run of a file's blocks that lie side by side on the disk.
//
// The images are instants of a disk in use. What the file system's own structures are is in its journal as much as at
// home, so every block is read through the journal: of a block that committed transactions hold, the newest copy counts.
// The disk isn't written to. What the guest's kernel had only in memory at that instant can't be seen.
//
// The guest writes these disks, so nothing on them is believed: every number is bounded before it is used, whatever
// could be a cycle is counted, and what doesn't fit is ErrCorrupt, never a panic. Checksums are used only to find the end
// of the journal and to trust its copies; elsewhere a wrong byte gives a wrong answer about the guest's own files.
//
// # How it stays fast
//
// Blocks that differ are known before (the store compares trees of hashes). An inode can only have changed if its entry
// in an inode table did, or one of its blocks. So: changed blocks of inode tables give the touched inodes; their blocks
// are set against the changed blocks; if some in use are left, all inodes are scanned for their owners, which happens
// when data was overwritten in place and the inode's new times were still in memory. Then both trees are walked side by
// side for the names: a directory untouched on both sides is read once, and of its files only touched ones are looked at.
//
// # Not supported
//
// Block sizes other than 4096, inline data, encryption, meta_bg, bigalloc, external journals, fast commits: none is in a
// disk that vmm/bundle makes. They give ErrUnsupported.
//
// Formats are from the kernel's Documentation/filesystems/ext4 and fs/jbd2; each file has the table of what it reads.
package ext4fs

import "errors"

var (
	ErrCorrupt     = errors.New("the ext4 file system is damaged")
	ErrUnsupported = errors.New("the ext4 file system can't be read")
	ErrTooLarge    = errors.New("the ext4 file system is too large to compare")
)

// Block is the only supported block size.
const blockBytes = 4096
