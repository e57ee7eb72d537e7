package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ext4Features is written out so that a bundle doesn't depend on the host's mke2fs.conf. It is what every kernel since
// 4.x mounts. The journal stays: a VM that is killed must come back clean.
const ext4Features = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"

// journalMiB is small because every block of the journal that was ever written is a block to checkpoint.
const journalMiB = 8

// ext4Epoch stands for the time at which the file system was made, which would make equal trees give different blocks.
const ext4Epoch = "946684800" // 2000-01-01

// ext4UUID is the same for all root disks: checksums of ext4's own blocks begin with it, and equal blocks should be equal
// chunks. A machine has one such disk, and forks share theirs anyway.
const ext4UUID = "f1a54000-0b0d-4d15-8c00-000000000000"

// makeExt4 makes the file disk with the tree's files as ext4, without mounting anything, and checks it.
func (b *builder) makeExt4(ctx context.Context, dir, disk string, diskMiB int) error {
	b.step("make the root disk", 0, 0, "")
	journal := journalMiB
	if diskMiB < 16*journalMiB {
		journal = 4 // the least that ext4 accepts
	}
	args := []string{
		"-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-L", "flash-root",
		"-O", ext4Features, "-J", "size=" + strconv.Itoa(journal), "-U", ext4UUID,
		// Not lazy: the guest would zero inode tables in the background, and each zero would be a dirty block.
		"-E", "hash_seed=" + ext4UUID + ",lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
		"-d", dir, disk, strconv.Itoa(diskMiB) + "M",
	}
	env := []string{"MKE2FS_CONFIG=/dev/null", "E2FSPROGS_FAKE_TIME=" + ext4Epoch}
	if _, err := (command{name: "mkfs.ext4", pkg: "e2fsprogs", args: args, env: env}).run(ctx); err != nil {
		var ce *commandError
		if errors.As(err, &ce) && (strings.Contains(ce.stderr, "Could not allocate") || strings.Contains(ce.stderr, "No free space")) {
			return fmt.Errorf("%w: %d MiB don't hold the files; give it more (%w)", ErrDiskTooSmall, diskMiB, err)
		}
		return fmt.Errorf("root disk: %w", err)
	}
	if err := os.Chmod(disk, 0o600); err != nil {
		return fmt.Errorf("root disk: %w", err)
	}
	b.step("check the root disk", 0, 0, "")
	if out, err := (command{name: "e2fsck", pkg: "e2fsprogs", args: []string{"-f", "-n", disk}}).run(ctx); err != nil {
		return fmt.Errorf("root disk has errors just after it was made: %w: %.400s", err, out)
	}
	return nil
}
