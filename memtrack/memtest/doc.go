// Package memtest gives tests of guest memory a stand-in for a machine's process: the test binary itself, started again,
// which maps memory as QEMU does and reads and writes it when told to. It also has sources of pages that fail on demand.
//
// A test package that starts a Child calls Main first thing in its TestMain.
package memtest
