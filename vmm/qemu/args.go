package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"flash/vmm"
)

// Numbers of the descriptors a QEMU inherits.
const (
	monitorFD = 3
	consoleFD = 4
	channelFD = 5
	bootFD    = 6 // the kernel; 7: the initrd
)

// Addresses on a q35's root bus (Layout 1). Disks follow one another from diskSlot.
const (
	channelSlot = 0x2
	netSlot     = 0x3
	rngSlot     = 0x4
	diskSlot    = 0x8
)

// engineCmdline is what the engine needs of a guest's kernel.
//
//	console=ttyS0    the console we copy
//	panic=-1         reboots at once, which -no-reboot turns into the end of the process
//	reboot=t         by triple fault: works without a keyboard controller and without ACPI (microvm)
//	init_on_free=1   freed pages are zero: 38 % fewer non-zero pages, and a removed 64 MiB file costs 136 KB, not 64 MB
//	no_timer_check   the kernel's trial of the IO-APIC's timer busy-waits for ticks, and panics when an emulated CPU gets none
//	                 in time because its host is busy
const engineCmdline = "console=ttyS0 quiet panic=-1 reboot=t init_on_free=1 no_timer_check"

// tcgCmdline is what it needs besides under emulation, where every instruction that runs for the first time after a restore
// has to be translated: about 8 µs for each basic block, of which a restore, its repair and a first command meet 30,000. A
// bundle's own command line comes later and may say otherwise.
//
//	mitigations=off   an emulated CPU doesn't speculate
//	lsm=capability    AppArmor and TOMOYO, without a profile to enforce, cost 900 blocks
//	psi=0             pressure accounting at every switch of tasks
//	nowatchdog        a CPU that is late is its host's business
const tcgCmdline = "mitigations=off lsm=capability psi=0 nowatchdog"

// bootFrom is what a booting machine is given and a waiting process isn't. Its files are read by their descriptors: QEMU's
// user can't enter the folder they are in.
type bootFrom struct {
	files        []*os.File // the kernel, and the initrd if there is one
	cmdline, mac string
}

// tcgCPU is the CPU under emulation: all that QEMU knows, but for what protects a kernel from its processes by more work at
// every entry or access, and the fifth level of page tables, one more look-up at every miss. AVX2 stays: images are built
// for x86-64-v3.
const tcgCPU = "max,la57=off,smap=off,smep=off,umip=off,pku=off,pks=off"

// arguments gives QEMU's command line, without the program's name. boot nil: a process waiting for a state.
func arguments(s shape, boot *bootFrom) []string {
	memKiB := s.memBytes >> 10
	cpu, _, _ := strings.Cut(s.facts.CPU, "/")
	micro := s.facts.MachineType == "microvm"

	machine, device := s.facts.MachineType+",sata=off,smbus=off,hpet=off,memory-backend=mem", pciDevice
	if micro {
		machine, device = s.facts.MachineType+",pit=off,pic=off,rtc=off,memory-backend=mem", mmioDevice
	}
	accel := s.facts.Accel
	if accel == "tcg" {
		accel += ",tb-size=256" // MiB; QEMU's own limit is 1 GiB of translated code for each machine
	}
	args := []string{
		"-M", machine,
		"-accel", accel,
		"-cpu", cpu,
		"-smp", fmt.Sprint(s.vcpus),
		"-m", fmt.Sprintf("%dK", memKiB),
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dK,share=on", memKiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD), "-mon", "chardev=monitor,mode=control",
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d", consoleFD), "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", channelFD),
		"-device", device("virtio-serial", channelSlot, "id=ser0,max_ports=4"),
		"-device", "virtserialport,bus=ser0.0,nr=1,chardev=agent,name=" + ChannelName + ",id=port1",
	}
	// restrict: the guest can't reach the host's loopback (10.0.2.2); forwarded ports work all the same. guest_announce: without
	// it a restored guest doesn't tell a network that has nobody else in it where it is now, for 2,500 blocks of its kernel.
	nic := "id=nic0,netdev=net0,guest_announce=off"
	if !micro {
		nic += ",romfile="
	}
	if boot != nil && boot.mac != "" {
		nic += ",mac=" + boot.mac // a restored machine's comes with its state
	}
	args = append(args,
		"-netdev", "user,id=net0,restrict=on,ipv6=off",
		"-device", device("virtio-net", netSlot, nic),
		"-object", "rng-builtin,id=entropy0",
		"-device", device("virtio-rng", rngSlot, "id=rng0,rng=entropy0"),
	)
	for i := range s.disks {
		args = append(args,
			"-blockdev", "driver=null-co,node-name="+emptyDrive(i)+",size=1048576,read-zeroes=on",
			"-device", device("virtio-blk", diskSlot+i, fmt.Sprintf("id=%s,drive=%s,num-queues=1,werror=stop,rerror=stop", diskDevice(i), emptyDrive(i))),
		)
	}
	if !micro {
		args = append(args, "-device", "pvpanic")
	}
	if boot == nil {
		return append(args, "-incoming", "defer")
	}
	for i := range boot.files {
		args = append(args, []string{"-kernel", "-initrd"}[i], fmt.Sprintf("/proc/self/fd/%d", bootFD+i))
	}
	cmdline := engineCmdline
	if s.facts.Accel == "tcg" {
		cmdline += " " + tcgCmdline
	}
	return append(args, "-append", strings.TrimSpace(cmdline+" "+boot.cmdline))
}

func pciDevice(name string, slot int, options string) string {
	return fmt.Sprintf("%s-pci,addr=%#x,%s", name, slot, options)
}

// mmioDevice has no address: a microvm gives its transports out in the order of the command line.
func mmioDevice(name string, _ int, options string) string {
	return name + "-device," + options
}

func diskDevice(i int) string { return fmt.Sprintf("vd%d", i) }
func diskNode(i int) string   { return fmt.Sprintf("disk%d", i) }
func emptyDrive(i int) string { return fmt.Sprintf("empty%d", i) }

// shapeOf checks a Spec and what is attached to it, before anything is started.
func shapeOf(s vmm.Spec, a vmm.Attach, f vmm.Facts) (shape, error) {
	switch {
	case s.VCPUs < 1 || s.VCPUs > maxVCPUs:
		return shape{}, fmt.Errorf("%d CPUs: a machine has 1 to %d", s.VCPUs, maxVCPUs)
	case s.MemBytes < minMemBytes || s.MemBytes > maxMemBytes || s.MemBytes%memGranule != 0:
		return shape{}, fmt.Errorf("%d bytes of memory: a machine has %d MiB to %d MiB, in whole MiB", s.MemBytes, minMemBytes>>20, maxMemBytes>>20)
	case len(a.Disks) > maxDisks:
		return shape{}, fmt.Errorf("%d disks: a machine has at most %d", len(a.Disks), maxDisks)
	case a.Dir == "" && len(a.Disks) > 0:
		return shape{}, errors.New("no folder for the machine's sockets")
	}
	for _, d := range a.Disks {
		if d.Name == "" || d.Overlay == nil {
			return shape{}, fmt.Errorf("disk %q has no name or no content", d.Name)
		}
	}
	if s.MAC != "" {
		if mac, err := net.ParseMAC(s.MAC); err != nil || len(mac) != 6 {
			return shape{}, fmt.Errorf("%q isn't an Ethernet address", s.MAC)
		}
	}
	return shape{facts: f, vcpus: s.VCPUs, memBytes: s.MemBytes, disks: len(a.Disks)}, nil
}
