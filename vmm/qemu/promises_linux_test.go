package qemu

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
	"flash/vmm/vmmtest"
)

// fileDisk is a disk's content in a file.
type fileDisk struct {
	file   *os.File
	blocks uint64
}

func (d fileDisk) Slots() uint64 { return d.blocks }

func (d fileDisk) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	_, err := d.file.ReadAt(dst[:blockdelta.BlockBytes], int64(slot*blockdelta.BlockBytes))
	return err
}

func (d fileDisk) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	data := make([]byte, blockdelta.BlockBytes)
	for _, slot := range slots {
		if err := d.ReadSlot(ctx, slot, data); err != nil {
			return err
		}
		if err := each(slot, data); err != nil {
			return err
		}
	}
	return nil
}

// agentGuest is a guest in which flash's agent runs, with busybox on its disk.
func agentGuest(t *testing.T) (vmm.Spec, fileDisk) {
	t.Helper()
	if _, err := kernelPackage(); err != nil {
		needVM(t, err.Error())
	}
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			needVM(t, name+": "+err.Error()+": "+string(out))
		}
	}
	agent := filepath.Join(dir, "agent")
	run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", agent, "flash/vmm/guest/agent")
	program, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	files, err := withInitrd("agent", map[string][]byte{"init": program})
	if err != nil {
		needVM(t, err.Error())
	}
	root := filepath.Join(dir, "root")
	run("sh", "-c", `mkdir -p "$1" && cd "$1" && mkdir bin dev etc proc run sys tmp work newroot &&
		cp /bin/busybox bin/ && for name in $(bin/busybox --list); do [ -e bin/$name ] || ln -s busybox bin/$name; done`, "sh", root)
	disk := filepath.Join(dir, "disk")
	run("mke2fs", "-q", "-t", "ext4", "-d", root, disk, "32M")
	file, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return vmm.Spec{VCPUs: 2, MemBytes: testMemBytes, MAC: "52:54:00:00:00:01", Kernel: files[0], Initrd: files[1]},
		fileDisk{file, 32 << 20 / memtrack.PageBytes}
}

func TestEnginePromises(t *testing.T) {
	e := testEngine(t, Config{})
	spec, disk := agentGuest(t)
	vmmtest.Run(t, e, vmmtest.Options{
		Spec:   spec,
		Disk:   disk,
		Folder: "/work",
		OnDisk: true,
		Listen: "nc -ll -p 8080 -e echo hello > /dev/null 2>&1 < /dev/null &",
	})
}
