// Package qemu is the engine that runs a machine as an unmodified QEMU process.
package qemu
