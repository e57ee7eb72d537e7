package local_test

import (
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func TestLocalConforms(t *testing.T) {
	for name, c := range map[string]local.Config{
		"plain":       {},
		"keyed":       {Key: &[32]byte{1, 2}},
		"small packs": {TargetPackBytes: 20_000, OpenFiles: 3},
	} {
		t.Run(name, func(t *testing.T) {
			castest.Run(t, func(t *testing.T) cas.Store {
				c.Dir = t.TempDir()
				s, err := local.Open(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
