package host

import (
	"path/filepath"
	"testing"

	badger "github.com/dgraph-io/badger/v4"
)

// Listing costs what there are VMs, not what there are checkpoints: it works even where no history can be read.
func TestListingVMsReadsNoHistory(t *testing.T) {
	w := newWorld(t)
	w.run("a", eachCommand)
	for range 3 {
		w.write("a", "x")
	}
	w.must(w.Close(t.Context()))
	w.must(w.meta.Close())
	db, err := badger.Open(badger.DefaultOptions(filepath.Join(w.dir, "meta")).WithLogger(nil))
	w.must(err)
	w.must(db.Update(func(tx *badger.Txn) error {
		for n := byte(1); n <= 4; n++ { // the fourth is from the daemon's end
			if err := tx.Set([]byte("c/a\x00\x00\x00\x00"+string(rune(n))), []byte("no record")); err != nil {
				return err
			}
		}
		return nil
	}))
	w.must(db.Close())
	w.openStore()
	w.open(Deadlines{})
	if _, err := w.History(t.Context(), "a"); err == nil {
		t.Fatal("the history can be read")
	}
	vms, err := w.List(t.Context())
	w.must(err)
	if len(vms) != 1 || vms[0].Checkpoints != 4 {
		t.Fatalf("%+v", vms)
	}
}
