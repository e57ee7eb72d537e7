package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	badger "github.com/dgraph-io/badger/v4"
	badgeroptions "github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
)

// verifyTables reads every block of every table of a database that isn't open. Badger doesn't do it for us: by default it
// trusts the disk; told not to, it opens without a table whose checksum is wrong, or panics in a goroutine of its own.
func verifyTables(o badger.Options) error {
	f, err := os.Open(filepath.Join(o.Dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) { // new
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	m, _, err := badger.ReplayManifestFile(f, o.ExternalMagicVersion, o)
	if err != nil {
		return fmt.Errorf("%s: %v: %w", f.Name(), err, ErrDatabase)
	}
	for id, t := range m.Tables {
		path := table.NewFilename(id, o.Dir)
		if err := verifyTable(path, t.Compression, o.BlockSize); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func verifyTable(path string, compression badgeroptions.CompressionType, blockBytes int) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file isn't there: %w", ErrDatabase)
	}
	mapped, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer mapped.Close(-1)
	defer func() {
		if p := recover(); p != nil { // over lengths that are no lengths
			err = fmt.Errorf("%v: %w", p, ErrDatabase)
		}
	}()
	if _, err := table.OpenTable(mapped, table.Options{ReadOnly: true, BlockSize: blockBytes, Compression: compression,
		ChkMode: badgeroptions.OnTableAndBlockRead}); err != nil {
		return fmt.Errorf("%v: %w", err, ErrDatabase)
	}
	return nil
}
