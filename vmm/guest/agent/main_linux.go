package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "dev"

const (
	agentPath    = "/run/flash/agent"
	runDir       = "/run/flash"
	initFile     = "/etc/flash/init"
	hooksDir     = "/etc/flash/hooks.d"
	heapLimit    = 64 << 20 // garbage is collected when memory reaches it, or by the collector
	openFilesMax = 1 << 20
)

func main() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapLimit)
	runtime.GOMAXPROCS(1) // one thread runs Go code at a time: fewer stacks and caches to dirty
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := serve(); err != nil {
			giveUp(err)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "flash-agent: runs as /init of an initrd, or with the argument serve")
		os.Exit(2)
	}
	giveUp(boot())
}

// giveUp says why on the console and ends the machine, or, when another init is in charge, only this process.
func giveUp(err error) {
	say("%v", err)
	if os.Getpid() == 1 {
		unix.Sync()
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	os.Exit(1)
}

// say writes one line on the console.
func say(format string, args ...any) {
	line := "flash-agent: " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n"
	fd, err := unix.Open("/dev/console", unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		fd = 2
	} else {
		defer unix.Close(fd)
	}
	unix.Write(fd, []byte(line))
}

// serve speaks with hosts until the machine ends.
func serve() error {
	// Only the hard limit: programs that want more files may ask, those that close all they could have stay quick.
	limit := unix.Rlimit{Cur: 1024, Max: openFilesMax}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		say("limit of open files: %v", err)
	}
	// Root is in group 0 by the kernel's count too, as /etc/passwd says: then root's commands need no other account than ours.
	if err := unix.Setgroups([]int{0}); err != nil {
		say("own group: %v", err)
	}
	a, err := newAgent()
	if err != nil {
		return err
	}
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	server := guest.NewServer(a, guest.Info{Version: version, BootID: strings.TrimSpace(string(bootID))})
	for {
		p, err := openPort(portName)
		if err != nil {
			return err
		}
		say("ready")
		if err := server.Serve(p); err != nil {
			say("the host's channel: %v", err)
		}
	}
}
