package offsite

import (
	"encoding/json"
	"fmt"
	"time"

	"flash/store/manifest"
)

// ObjectDump is an object of the bucket as it is stored, for people: facts, and a table.
type ObjectDump struct {
	Kind    string
	Facts   [][2]string
	Columns []string
	Rows    [][]string
	History *manifest.History // of a ref that wasn't removed
}

func (d *ObjectDump) fact(name, format string, args ...any) {
	d.Facts = append(d.Facts, [2]string{name, fmt.Sprintf(format, args...)})
}

// DumpObject shows a ref, a lease, a hold, the condemned packs or working sets. ErrFormat.
func DumpObject(p []byte) (ObjectDump, error) {
	var d ObjectDump
	err := d.show(p)
	return d, err
}

func (d *ObjectDump) show(p []byte) error {
	if len(p) >= len(refMagic) && string(p[:len(refMagic)]) == refMagic {
		return d.ref(p)
	}
	var head object
	if err := json.Unmarshal(p, &head); err != nil {
		return fmt.Errorf("it is neither a ref nor JSON: %w: %w", err, ErrFormat)
	}
	show := map[string]func([]byte) error{kindLease: d.lease, kindHold: d.hold, kindCondemned: d.condemned, kindSets: d.sets}[head.Flash]
	if show == nil {
		return fmt.Errorf("it says it is %.40q, which this program doesn't know: %w", head.Flash, ErrFormat)
	}
	d.Kind = head.Flash
	return show(p)
}

func (d *ObjectDump) ref(p []byte) error {
	d.Kind = "ref"
	r, err := decodeRef(p)
	if err != nil {
		return err
	}
	d.fact("flashvm", "%s", r.VM)
	d.fact("removed", "%v", r.Removed)
	d.fact("owner", "%s (%s)", r.HostName, r.Owner)
	d.fact("owned since", "%s", r.Since.Format(time.RFC3339))
	d.fact("pushed", "%s", r.Pushed.Format(time.RFC3339))
	d.fact("epoch", "%d", r.Epoch)
	d.fact("seq", "%d", r.Seq)
	if r.Removed {
		return nil
	}
	if d.History, err = manifest.DecodeHistory(r.History); err != nil {
		d.fact("history", "%d bytes that can't be read: %v", len(r.History), err) // what the ref itself says stands
	}
	return nil
}

func (d *ObjectDump) sets(p []byte) error {
	w, err := decodeSets(p)
	if err != nil {
		return err
	}
	d.Columns = []string{"SNAPSHOT", "\tPAGES"}
	for i := range w.Sets {
		d.Rows = append(d.Rows, []string{w.Sets[i].Snapshot.String(), fmt.Sprint(len(w.Sets[i].Distances))})
	}
	return nil
}

func (d *ObjectDump) lease(p []byte) error {
	l, err := decodeLease(p)
	if err != nil {
		return err
	}
	d.fact("flashvm", "%s", l.VM)
	d.fact("host", "%s (%s)", l.HostName, l.Host)
	d.fact("began", "%s", l.Began.Format(time.RFC3339))
	d.fact("renewed", "%d times", l.Renewed)
	d.packs(l.Packs)
	return nil
}

func (d *ObjectDump) hold(p []byte) error {
	h, err := decodeHold(p)
	if err != nil {
		return err
	}
	d.fact("flashvm", "%s, as that host calls it", h.VM)
	d.fact("host", "%s (%s)", h.HostName, h.Host)
	d.fact("since", "%s", h.Since.Format(time.RFC3339))
	for _, s := range h.Snapshots {
		d.Rows = append(d.Rows, []string{"snapshot", s.String()})
	}
	d.packs(h.Packs)
	return nil
}

func (d *ObjectDump) packs(ids []packID) {
	d.Columns = []string{"HOLDS", "NAME"}
	for _, id := range ids {
		d.Rows = append(d.Rows, []string{"pack", id.String()})
	}
}

func (d *ObjectDump) condemned(p []byte) error {
	c, err := decodeCondemned(p)
	if err != nil {
		return err
	}
	if k := c.Collector; k != nil {
		d.fact("collector", "%s (%s), run %s", k.HostName, k.Host, k.Run)
		d.fact("began", "%s", k.Began.Format(time.RFC3339))
		d.fact("renewed", "%d times", k.Renewed)
	} else {
		d.fact("collector", "none")
	}
	if len(c.Tombstones) > 0 {
		d.fact("tombstones", "%q are being deleted", c.Tombstones)
	}
	d.Columns = []string{"PACK ID", "STATE", "SINCE", "\tBYTES", "PACK"}
	for _, k := range c.Packs {
		d.Rows = append(d.Rows, []string{k.Pack.String(), k.State, k.Since.Format(time.RFC3339), fmt.Sprint(k.Bytes), k.Content.String()})
	}
	return nil
}
