package fake

import (
	"testing"
	"time"

	"flash/vmm"
	"flash/vmm/vmmtest"
)

func TestEnginePromises(t *testing.T) {
	e := New(Config{Tick: time.Millisecond})
	vmmtest.Run(t, e, vmmtest.Options{
		Spec:   vmm.Spec{VCPUs: 1, MemBytes: 8 << 20, MAC: "52:54:00:00:00:01"},
		Folder: "/work",
		OnDisk: true,
		Listen: "listen 8080 hello &",
		Kill:   func(m vmm.Machine) { m.(*Machine).Crash() },
		Limit:  20 * time.Second,
	})
	for _, v := range e.Violations() {
		t.Error(v)
	}
	must(t, e.Close())
}
