package dir_test

import (
	"testing"

	"flash/cas/bucket"
)

func TestProbeOfAFolderIsGreenWhereItCanTell(t *testing.T) {
	b := open(t, t.TempDir())
	for _, c := range bucket.Probe(t.Context(), b) {
		want := bucket.OK
		if c.Name == "checksum" || c.Name == "clock" {
			want = bucket.Unknown
		}
		if c.Result != want {
			t.Errorf("%+v", c)
		}
	}
	for info, err := range b.List(t.Context(), "") {
		t.Errorf("left: %+v, %v", info, err)
	}
}
