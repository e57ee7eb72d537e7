// Command nested runs a command on a machine with a truly working /dev/kvm, made out of nothing but emulation.
//
//	go run ./vmm/vmmtest/nested [-m MIB] [-t SECONDS] [-v] COMMAND [ARG...]
//
// QEMU emulates a processor with AMD's virtualization, Debian's kernel loads kvm-amd there, and this program is its init:
// it mounts the host's root read-only, with empty file systems over /tmp, /run, /var/tmp and /dev/shm, and runs the command
// there in the caller's folder and environment. What the command prints comes out here, standard error included; its exit
// status is this program's. 124 says that time ran out, 125 that the machine failed.
//
// That kernel is Debian 12's 6.1. It has userfaultfd and soft-dirty but no PAGEMAP_SCAN, so it stands for older hosts too.
// It is for correctness and says nothing about speed.
//
// Terms: outer is the machine that this program starts; what runs there with KVM is a guest.
//
// The machine's descriptors, inherited by its QEMU:
//
//	fd 3, 4  the kernel and the initrd, memory files: nothing is written to a disk
//	fd 5     pipe of the console, kept for the case of failure   (ttyS0)
//	fd 6     pipe of what the command prints                     (ttyS1)
//	fd 7     pipe of the exit status, "exit N\n"                 (ttyS2)
//
// The QEMU dies with the thread that started it (PR_SET_PDEATHSIG), so nothing stays behind however this ends.
package main
