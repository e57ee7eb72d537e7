package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The keys of the Badger database. All that changes is here and nothing else is.
//
//	key                        value
//	"format"                   decimal format version, "1"
//	"b/" name                  bundleRecord, JSON
//	"v/" vm                    vmRecord, JSON
//	"c/" vm 0x00 u32           checkpointRecord, JSON, by number
//	"l/" vm 0x00 u64           ledgerRecord, JSON, by seq
//	"h/" vm                    ledgerHead, JSON: what the next entry is chained to; a lost last entry shows
//	"w/" 32-byte snapshot id   working set: see workingset.go
//	"r/" vm                    Retention, JSON; without a name that of all VMs that have none of their own
//	"commits"                  u64, little-endian: how many transactions there were; see witness.go
//	"settings"                 Settings, JSON
//	"n/" u64                   hash of the note of that sequence number; see notes.go
//	"catalogue"                u64 transactions, then the hashes of the newest catalogue's chunks
//	"store"                    16 bytes, random: which store this is
//	"notes"                    u64, little-endian: sequence numbers up to it were given by sessions before this one
//	"x/" vm                    empty: the VM was deleted, and its c/, l/ and h/ keys are still being removed
//
// Numbers are big-endian, so that keys sort by them. Names hold no zero byte, so no name's keys are among another's.
const (
	formatKey       = "format"
	formatVersion   = "1"
	bundlePrefix    = "b/"
	vmPrefix        = "v/"
	historyPrefix   = "c/"
	ledgerPrefix    = "l/"
	ledgerHeadKeys  = "h/"
	workingPrefix   = "w/"
	deletedPrefix   = "x/"
	retentionPrefix = "r/"
	settingsKey     = "settings"
	notePrefix      = "n/"
	storeIDKey      = "store"
	noteBaseKey     = "notes"

	maxNameBytes = 128
)

func bundleKey(name string) []byte   { return []byte(bundlePrefix + name) }
func vmKey(vm string) []byte         { return []byte(vmPrefix + vm) }
func historyKeys(vm string) []byte   { return []byte(historyPrefix + vm + "\x00") }
func ledgerKeys(vm string) []byte    { return []byte(ledgerPrefix + vm + "\x00") }
func ledgerHeadKey(vm string) []byte { return []byte(ledgerHeadKeys + vm) }
func deletedKey(vm string) []byte    { return []byte(deletedPrefix + vm) }
func retentionKey(vm string) []byte  { return []byte(retentionPrefix + vm) }
func noteKey(sequence uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(notePrefix), sequence)
}

// noteOf is noteKey's inverse.
func noteOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(notePrefix):]) }

func workingKey(id SnapshotID) []byte { return append([]byte(workingPrefix), id[:]...) }
func checkpointKey(vm string, n int) []byte {
	return binary.BigEndian.AppendUint32(historyKeys(vm), uint32(n))
}

// checkpointOf is checkpointKey's inverse. ErrFormat for a key that is none.
func checkpointOf(key []byte) (vm string, n int, err error) {
	at := len(key) - 5
	if at < len(historyPrefix) || key[at] != 0 {
		return "", 0, errKey(key)
	}
	return string(key[len(historyPrefix):at]), int(binary.BigEndian.Uint32(key[at+1:])), nil
}

// seqOf gives the seq of a key of the given VM's ledger.
func seqOf(key []byte, vm string) (uint64, error) {
	if len(key) != len(ledgerPrefix)+len(vm)+1+8 {
		return 0, errKey(key)
	}
	return binary.BigEndian.Uint64(key[len(key)-8:]), nil
}

func errKey(key []byte) error { return fmt.Errorf("key %.80q: %w", key, ErrFormat) }

func ledgerKey(vm string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(ledgerKeys(vm), seq)
}

// checkName refuses what can't be part of a key.
func checkName(what, name string) error {
	if name == "" || len(name) > maxNameBytes || strings.Contains(name, "\x00") || !utf8.ValidString(name) {
		return fmt.Errorf("%s %.40q: a name is 1 to %d bytes of UTF-8 without zero bytes", what, name, maxNameBytes)
	}
	return nil
}

// lockName is the file that is locked while the folder is in use.
const lockName = "flash.lock"
