package ext4fs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// journaled gives a disk on which the blocks in which two disks differ, and which the file system itself uses, are as
// before at home and as after in the journal; what is data is at home, as ext4 orders it.
type journaled struct {
	*e2fs
	before, after disk
	blocks        []uint64
}

func makeJournaled(t *testing.T, commands ...string) *journaled {
	t.Helper()
	f := makeFS(t, tree(t, map[string]string{"etc/hosts": "127.0.0.1", "old": "old"}), 16)
	j := &journaled{e2fs: f, before: f.disk()}
	f.debug(commands...)
	j.after = f.disk()
	j.blocks = slotsThatDiffer(j.before, j.after)
	j.put(j.before)
	return j
}

func (j *journaled) put(d disk) {
	j.t.Helper()
	if err := os.WriteFile(j.file, d, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// write gives the commands that log blocks with what they hold on a disk.
func (j *journaled) write(from disk, blocks []uint64, flags string) string {
	var content []byte
	for _, n := range blocks {
		content = append(content, from[n*blockBytes:(n+1)*blockBytes]...)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(blocks), " ", ","), "[]")
	return "jw " + flags + " -b " + list + " " + j.host(content)
}

var checksums = []string{"jo", "jo -c -v 2", "jo -c -v 3"}

func TestCommittedTransactionsCount(t *testing.T) {
	for _, open := range checksums {
		t.Run(open, func(t *testing.T) {
			j := makeJournaled(t, "mkdir srv", "symlink srv/name elsewhere", "rm old")
			j.debug(open, j.write(j.after, j.blocks, ""), "jc")
			want(t, j.before, j.disk(), "- /old 3", "+ /srv/ 0", "+ /srv/name 9")

			// What recovery makes of it is the same.
			withJournal := j.disk()
			j.run("e2fsck", "-fy", "-E", "journal_only", j.file)
			want(t, withJournal, j.disk())
			want(t, j.before, j.disk(), "- /old 3", "+ /srv/ 0", "+ /srv/name 9")
		})
	}
}

func TestTransactionWithoutCommitNeverHappened(t *testing.T) {
	for _, open := range checksums {
		j := makeJournaled(t, "mkdir srv")
		j.debug(open, j.write(j.after, j.blocks, "-c"), "jc")
		want(t, j.before, j.disk())
	}
}

func TestDamagedCommitEndsTheLog(t *testing.T) {
	j := makeJournaled(t, "mkdir srv")
	j.debug("jo -c -v 3", j.write(j.after, j.blocks, ""), "jc")
	d := j.disk()
	want(t, j.before, d, "+ /srv/ 0")
	commit := findHeader(t, d, typeCommit)
	d[commit+200] ^= 1
	want(t, j.before, d)
}

func TestDamagedCopyIsNoAnswer(t *testing.T) {
	j := makeJournaled(t, "mkdir srv")
	j.debug("jo -c -v 3", j.write(j.after, j.blocks, ""), "jc")
	d := j.disk()
	d[findHeader(t, d, typeDescriptor)+blockBytes+3000] ^= 1
	_, err := Compare(t.Context(), j.before, d, slotsThatDiffer(j.before, d), 10)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestNewestCopyCounts(t *testing.T) {
	for _, open := range checksums {
		j := makeJournaled(t, "mkdir srv")
		j.put(j.after)
		j.debug("mkdir opt")
		last := j.disk()
		j.put(j.before)
		later := slotsThatDiffer(j.before, last)
		j.debug(open, j.write(j.after, j.blocks, ""), j.write(last, later, ""), "jc")
		want(t, j.before, j.disk(), "+ /opt/ 0", "+ /srv/ 0")
	}
}

func TestRevokedCopyDoesntCount(t *testing.T) {
	for _, open := range checksums {
		j := makeJournaled(t, "mkdir srv")
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(j.blocks), " ", ","), "[]")
		j.debug(open, j.write(j.after, j.blocks, ""), "jw -r "+list, "jc")
		want(t, j.before, j.disk())

		j.put(j.before) // one that is logged again afterwards does
		j.debug(open, j.write(j.after, j.blocks, ""), "jw -r "+list, j.write(j.after, j.blocks, ""), "jc")
		want(t, j.before, j.disk(), "+ /srv/ 0")
	}
}

func TestCleanJournalIsNotReplayed(t *testing.T) {
	j := makeJournaled(t, "mkdir srv")
	j.debug("jo -c -v 3", j.write(j.after, j.blocks, ""), "jc")
	j.run("e2fsck", "-fy", "-E", "journal_only", j.file)
	j.debug("rmdir srv") // the old log is still there
	want(t, j.before, j.disk())
}

// findHeader finds the first block of the log of a type.
func findHeader(t *testing.T, d disk, kind uint32) int {
	t.Helper()
	for at := 0; at < len(d); at += blockBytes {
		if binary.BigEndian.Uint32(d[at:]) == journalMagic && binary.BigEndian.Uint32(d[at+4:]) == kind {
			return at
		}
	}
	t.Fatalf("no block of the journal has type %d", kind)
	return 0
}

// ring is a journal of 16 blocks written by hand: blocks 16 to 31 of a disk, for a file system in blocks 0 to 15.
type ring struct{ disk }

const (
	ringStart = 16
	ringFirst = 1
	ringEnd   = 16
)

func newRing(start, sequence uint32) ring {
	r := ring{make(disk, 32*blockBytes)}
	p := r.at(0)
	for i, n := range []uint32{journalMagic, typeSuperV2, 0, blockBytes, ringEnd, ringFirst, sequence, start} {
		binary.BigEndian.PutUint32(p[4*i:], n)
	}
	return r
}

func (r ring) at(n uint32) []byte {
	return r.disk[(ringStart+n)*blockBytes : (ringStart+n+1)*blockBytes]
}

func (r ring) header(n, kind, sequence uint32) []byte {
	p := r.at(n)
	binary.BigEndian.PutUint32(p, journalMagic)
	binary.BigEndian.PutUint32(p[4:], kind)
	binary.BigEndian.PutUint32(p[8:], sequence)
	return p
}

// transaction logs one block and gives the block of the ring after the commit.
func (r ring) transaction(at, sequence, home uint32, content []byte) uint32 {
	next := func() {
		if at++; at == ringEnd {
			at = ringFirst
		}
	}
	p := r.header(at, typeDescriptor, sequence)
	binary.BigEndian.PutUint32(p[12:], home)
	flags := uint16(tagLast)
	next()
	copy(r.at(at), content)
	if binary.BigEndian.Uint32(content) == journalMagic {
		clear(r.at(at)[:4])
		flags |= tagEscaped
	}
	binary.BigEndian.PutUint16(p[18:], flags)
	next()
	r.header(at, typeCommit, sequence)
	next()
	return at
}

func (r ring) replayed(t *testing.T) *reader {
	t.Helper()
	read := newReader(context.Background(), r.disk, &meter{})
	replay, err := readJournal(read, []extent{{0, ringStart, ringEnd}}, ringStart)
	if err != nil {
		t.Fatal(err)
	}
	read.through(replay)
	return read
}

func TestLogGoesOnAtItsBeginning(t *testing.T) {
	r := newRing(13, ^uint32(0)) // sequences wrap as well
	at := r.transaction(13, ^uint32(0), 5, []byte("before the end"))
	at = r.transaction(at, 0, 6, []byte("over the end"))
	r.transaction(at, 1, 5, []byte("after it"))
	read := r.replayed(t)
	for home, content := range map[uint64]string{5: "after it", 6: "over the end", 7: "\x00"} {
		if p, err := read.block(home); err != nil || !bytes.HasPrefix(p, []byte(content)) {
			t.Errorf("block %d is %.20q, %v", home, p, err)
		}
	}
}

func TestEscapedCopyGetsItsMagicBack(t *testing.T) {
	r := newRing(1, 7)
	r.transaction(1, 7, 3, []byte("\xC0\x3B\x39\x98 begins like the journal"))
	if p, err := r.replayed(t).block(3); err != nil || !bytes.HasPrefix(p, []byte("\xC0\x3B\x39\x98 begins")) {
		t.Errorf("%.20q, %v", p, err)
	}
}
