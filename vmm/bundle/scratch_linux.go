package bundle

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// checkHost tells whether bundles can be built here at all.
func checkHost() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: files of any owner can only be made by root; run flash as root, or pull a bundle that was built elsewhere", ErrUnsupported)
	}
	return nil
}

// lockScratch takes the folder's lock, or fails at once. The kernel drops it with the process.
func lockScratch(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// detachMounts unmounts everything mounted below dir.
func detachMounts(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var below []string
	// Paths have blanks and backslashes in octal: \040 \011 \012 \134.
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape.Replace(fields[4]); strings.HasPrefix(at, dir+"/") {
			below = append(below, at)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for i := len(below) - 1; i >= 0; i-- { // the last was mounted on top
		if err := unix.Unmount(below[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", below[i], err)
		}
	}
	return nil
}
