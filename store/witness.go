package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	badger "github.com/dgraph-io/badger/v4"
)

// The witness counts the transactions, beside the database that counts them too.
//
// Badger takes the first bad entry of its log for the torn end of the last write and drops what follows: a flipped bit
// there silently takes back transactions that were synced. The witness is written after each of them, so a database with
// fewer than it says has lost some, and is refused. It isn't synced: after a power cut it may be behind, which is no
// finding, and it is never ahead.
//
//	0 8  number of transactions, little-endian
//	8 4  CRC-32C of bytes 0–7
type witness struct {
	file    *os.File
	commits uint64 // guarded by Store.write
}

const (
	witnessName  = "commits"
	commitsKey   = "commits"
	witnessBytes = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openWitness refuses a database that has fewer transactions than the witness saw.
func openWitness(dir string, db *badger.DB) (*witness, error) {
	path := filepath.Join(dir, witnessName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	w := &witness{file: f}
	if err := w.compare(db); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

func (w *witness) compare(db *badger.DB) error {
	err := db.View(func(tx *badger.Txn) error {
		v, err := get(tx, []byte(commitsKey))
		if err == nil && len(v) == 8 {
			w.commits = binary.LittleEndian.Uint64(v)
		}
		return err
	})
	if err != nil {
		return err
	}
	var p [witnessBytes]byte
	if n, err := w.file.ReadAt(p[:], 0); n < len(p) {
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", w.file.Name(), err)
		}
		return nil // new
	}
	if crc32.Checksum(p[:8], castagnoli) != binary.LittleEndian.Uint32(p[8:]) {
		return nil // torn; the next transaction writes it again
	}
	if saw := binary.LittleEndian.Uint64(p[:8]); saw > w.commits {
		return fmt.Errorf("the database has %d transactions, %d were committed: a file of it was damaged or is of an older backup; "+
			"removing %s goes on with what is left: %w", w.commits, saw, w.file.Name(), ErrDatabase)
	}
	return nil
}

// enter counts one within its own transaction.
func (w *witness) enter(tx *badger.Txn) error {
	return tx.Set([]byte(commitsKey), binary.LittleEndian.AppendUint64(nil, w.commits+1))
}

// saw notes that it was committed.
func (w *witness) saw() error {
	w.commits++
	p := binary.LittleEndian.AppendUint64(nil, w.commits)
	p = binary.LittleEndian.AppendUint32(p, crc32.Checksum(p, castagnoli))
	if _, err := w.file.WriteAt(p, 0); err != nil {
		return fmt.Errorf("note a transaction in %s: %w", w.file.Name(), err)
	}
	return nil
}
