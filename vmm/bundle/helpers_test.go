package bundle

import (
	"os"
	"strings"
	"testing"
)

// needRoot skips where files of any owner can't be made, unless FLASH_REQUIRE says that this must not be.
func needRoot(t *testing.T) {
	t.Helper()
	if err := checkHost(); err != nil {
		unavailable(t, err.Error())
	}
}

func unavailable(t *testing.T, why string) {
	t.Helper()
	if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Fatal(why)
	}
	t.Skip(why)
}

// newBuilder gives a builder with scratch of the test's own.
func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{scratch: t.TempDir(), cache: t.TempDir(), step: func(step string, done, total int64, unit string) {
		t.Logf("%s %d/%d %s", step, done, total, unit)
	}}
	if dir := os.Getenv("FLASH_TEST_CACHE"); dir != "" { // packages fetched before, to work offline
		b.cache = dir
	}
	return b
}
