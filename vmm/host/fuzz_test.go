package host

import (
	"encoding/json"
	"testing"

	"flash/store"
	"flash/vmm"
)

// A VM's record, as another version or a damaged disk may hand it on, is read or refused; what was read is written as what
// is read again.
func FuzzVMRecord(f *testing.F) {
	f.Add([]byte(`{"bundle":"busybox","vcpus":1,"mem_mib":512,"checkpoint_each_command":true,"ports":[{"host":1,"guest":2}],"mac":"52:54:00:00:00:01","from":{"flashvm":"a","checkpoint":2}}`),
		[]byte(`{"state":"running","reason":"","process":{"pid":7}}`))
	f.Add([]byte(`{}`), []byte(nil))
	f.Add([]byte(`null`), []byte(`{"state":3}`))
	f.Fuzz(func(t *testing.T, spec, state []byte) {
		v, err := openVM(store.VM{ID: "a", Spec: spec, State: state})
		if err != nil {
			if !isCode(err, CodeCorrupt) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := json.Marshal(v.hw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openVM(store.VM{ID: "a", Spec: again}); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

// A checkpoint's facts come from wherever its snapshot does. Only whole ones of this version are taken for any.
func FuzzFacts(f *testing.F) {
	f.Add("checkpoint", []byte(`{"engine":"qemu","engine_version":"7.2","machine_type":"q35","cpu":"max","accel":"tcg","device_layout":"1","agent_protocol":"1","agent_generation":"3"}`))
	f.Add("bundle", []byte(`{}`))
	f.Add("checkpoint", []byte(`{"engine":"qemu","agent_generation":"-1"}`))
	f.Fuzz(func(t *testing.T, kind string, facts []byte) {
		m := store.Meta{Kind: kind}
		if json.Unmarshal(facts, &m.Facts) != nil {
			t.Skip("no facts")
		}
		generationOf(m)
		got, err := factsOf(m)
		if err == nil && (kind != kindCheckpoint || got.Engine == "" || got.Version == "" || got.MachineType == "" || got.CPU == "" || got.Accel == "" || got.Layout == "") {
			t.Fatalf("%q %v were taken for %+v", kind, m.Facts, got)
		}
		if err != nil && got != (vmm.Facts{}) {
			t.Fatalf("refused, and yet %+v", got)
		}
	})
}
