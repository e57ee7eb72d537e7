package qemu

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The test guest: busybox and a few modules, out of a Debian cloud kernel package. Its init keeps a counter in memory:
// for every line on the agent's port it answers "count N WORDS…", N growing by one. It also writes files now and then,
// so that it dirties memory, and obeys a few words:
//
//	panic, reboot, poweroff   ends the guest that way
//	reach PORT                says whether it got through to that port of the host's loopback
//	serve                     answers "hello from the guest" on TCP port 8080
const guestInit = `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for m in $(cat /modules.list); do insmod /modules/$m; done
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up
port=/dev/$(basename $(dirname $(grep -l flash.agent /sys/class/virtio-ports/*/name)))
exec 3<>$port
(i=0; while :; do i=$((i+1)); head -c 65536 /dev/urandom > /tmp/f$((i%8)); sleep 0.1; done) &
echo "guest is up"
count=0
while read -r word rest <&3; do
  count=$((count+1))
  case $word in
  panic) echo c > /proc/sysrq-trigger;;
  reboot) reboot -f;;
  poweroff) poweroff -f;;
  serve) (while :; do echo "hello from the guest" | nc -l -p 8080 > /dev/null; done) & ;;
  write) echo "$rest" > /dev/vda; sync;;
  read) rest=$(dd if=/dev/vda bs=4096 count=1 iflag=direct 2>/dev/null | head -n 1);;
  reach) if echo hi | nc -w 3 10.0.2.2 $rest; then rest=reached; else rest="not reached"; fi;;
  mac) rest=$(cat /sys/class/net/eth0/address);;
  esac
  echo "count $count $rest" >&3
done
`

var guestModules = strings.Fields(`virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_mmio
	virtio_blk virtio_console failover net_failover virtio_net rng-core virtio-rng pvpanic pvpanic-mmio`)

// needVM skips a test that can't have a machine, or fails it where machines are required.
func needVM(t testing.TB, why string) {
	t.Helper()
	if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Fatal(why)
	}
	t.Skip(why)
}

var testGuest = sync.OnceValues(func() ([2]string, error) { // kernel, initrd
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return [2]string{}, err
	}
	return withInitrd("script", map[string][]byte{"bin/busybox": busybox, "init": []byte(guestInit)})
})

// withInitrd gives a kernel and an initrd of these programs and the modules.
func withInitrd(name string, programs map[string][]byte) (files [2]string, err error) {
	root, err := kernelPackage()
	if err != nil {
		return files, err
	}
	kernels, _ := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if len(kernels) == 0 {
		return files, fmt.Errorf("no kernel in %s", root)
	}
	initrd, err := buildInitrd(root, programs)
	if err != nil {
		return files, err
	}
	file, err := memoryFile("initrd-" + name)
	if err != nil {
		return files, err
	}
	keep = append(keep, file)
	_, err = file.Write(initrd)
	return [2]string{kernels[0], fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())}, err
}

var keep []*os.File // open until the run ends, and then gone

// kernelPackage gives the folder in which Debian's cloud kernel is unpacked; the first time, it fetches it.
func kernelPackage() (string, error) {
	const cache = "/var/cache/flash/test"
	root := filepath.Join(cache, "kernel")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	out, err := exec.Command("apt-cache", "depends", "linux-image-cloud-amd64").Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends: %w", err)
	}
	_, name, _ := strings.Cut(string(out), "Depends: ")
	name, _, _ = strings.Cut(name, "\n")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, "fetch")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, script := range []string{`apt-get download "$1"`, `dpkg-deb -x *.deb unpacked`} {
		cmd := exec.Command("sh", "-c", script, "sh", name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", script, err, out)
		}
	}
	err = os.Rename(filepath.Join(dir, "unpacked"), root)
	if _, there := os.Stat(root); there == nil {
		err = nil // another test run was faster
	}
	return root, err
}

func buildInitrd(root string, programs map[string][]byte) ([]byte, error) {
	found := map[string]string{}
	filepath.Walk(filepath.Join(root, "lib/modules"), func(path string, info os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			found[filepath.Base(path)] = path
		}
		return nil
	})
	var out bytes.Buffer
	inode := 0
	add := func(name string, mode int, data []byte) {
		inode++
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
		out.WriteString(name + "\x00")
		out.Write(make([]byte, -out.Len()&3))
		out.Write(data)
		out.Write(make([]byte, -out.Len()&3))
	}
	for _, dir := range []string{"bin", "dev", "modules", "newroot", "proc", "sys", "tmp"} {
		add(dir, 0o040755, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		add(name, 0o100755, programs[name])
	}
	var list strings.Builder
	for _, name := range guestModules {
		path := found[name+".ko"]
		if path == "" {
			continue // it is built in
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		add("modules/"+name+".ko", 0o100644, data)
		fmt.Fprintln(&list, name+".ko")
	}
	add("modules.list", 0o100644, []byte(list.String()))
	add("TRAILER!!!", 0, nil)
	return out.Bytes(), nil
}
