package pagemap

import "testing"

func TestProbes(t *testing.T) {
	t.Log(Probe())
	t.Log(ProbeSoftDirty())
}
