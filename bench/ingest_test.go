package bench

import (
	"path/filepath"
	"testing"

	"flash/cas/local"
	"flash/store"
)

// BenchmarkIngest hashes and stores new pages on one core; MB/s is of plain bytes.
func BenchmarkIngest(b *testing.B) {
	dir := b.TempDir()
	chunks, err := local.Open(b.Context(), local.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer chunks.Close()
	s, err := store.Open(b.Context(), store.Config{Dir: filepath.Join(dir, "meta"), Chunks: chunks})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		figures, err := Ingest(b.Context(), s, 1)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range figures {
			b.Logf("%s: %.0f %s", f.Name, f.Median, f.Unit)
		}
	}
}
