package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"flash/cas"
	"flash/store"
)

// DebugRequest asks to see one thing of the store as it is stored.
type DebugRequest struct {
	What string `json:"what"` // pack node snapshot why process
	Name string `json:"name"` // a pack's name or its beginning, "" for their list; a hash; VM@N, VM or bundle
}

// DebugDump is what is there: some facts, and a table.
type DebugDump struct {
	Facts   []Fact     `json:"facts"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Fact is one line of a dump.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (d *DebugDump) fact(name, format string, args ...any) {
	d.Facts = append(d.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

func (d *DebugDump) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	d.Rows = append(d.Rows, row)
}

// Debug reads the store's formats. It changes nothing.
func (h *Host) Debug(ctx context.Context, r DebugRequest) (DebugDump, error) {
	d := DebugDump{Facts: []Fact{}, Columns: []string{}, Rows: [][]string{}}
	show := map[string]func(context.Context, string, *DebugDump) error{
		"pack": h.debugPack, "node": h.debugNode, "snapshot": h.debugSnapshot, "why": h.debugWhy, "process": h.debugProcess,
	}[r.What]
	if show == nil {
		return d, Errorf(CodeInvalid, "one of pack, node, snapshot, why, process", "there is nothing called %q to look at", r.What)
	}
	err := show(ctx, r.Name, &d)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return d, Errorf(CodeInvalid, "flash debug pack lists the packs, flash debug snapshot VM@N names hashes", "debug %s: %w", r.What, err)
	case errors.Is(err, store.ErrUnsupported):
		return d, Errorf(CodeUnsupported, "look on the host that keeps the packs", "debug %s: %w", r.What, err)
	case err != nil:
		return d, h.explain(err, "")
	}
	return d, nil
}

func (h *Host) debugPack(ctx context.Context, name string, d *DebugDump) error {
	if name == "" {
		names, err := h.store.PackNames()
		d.Columns = []string{"PACK"}
		for _, n := range names {
			d.row(n)
		}
		return err
	}
	p, err := h.store.DumpPack(ctx, name)
	if err != nil {
		return err
	}
	d.fact("file", "%s", p.Name)
	d.fact("pack id", "%s", p.ID)
	d.fact("created", "%s", p.Created.Format("2006-01-02T15:04:05.000Z07:00"))
	d.fact("sealed", "%v", p.Sealed)
	d.fact("bytes", "%d", p.Bytes)
	d.fact("plain bytes", "%d", p.PlainBytes)
	d.fact("damaged bytes", "%d", p.DamagedBytes)
	d.Columns = []string{"\tOFFSET", "\tBYTES", "\tPLAIN", "\tNAMED", "KIND", "CODEC", "HASH"}
	for _, r := range p.Records {
		d.row(r.Offset, r.Bytes, r.PlainBytes, r.NamedBytes, r.Kind, r.Codec, r.Hash)
	}
	return nil
}

func parseHash(text string) (cas.Hash, error) {
	hash, err := cas.ParseHash(text)
	if err != nil {
		return hash, Errorf(CodeInvalid, "give all 64 hex digits", "%w", err)
	}
	return hash, nil
}

func hintText(r cas.Ref) string {
	if r.Hint.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%x+%d", r.Hint.Pack, r.Hint.Offset)
}

func (h *Host) debugNode(ctx context.Context, name string, d *DebugDump) error {
	hash, err := parseHash(name)
	if err != nil {
		return err
	}
	n, err := h.store.DumpNode(ctx, hash)
	if err != nil {
		return err
	}
	d.fact("level", "%d", n.Level)
	form := "full"
	if !n.Base.Hash.IsZero() {
		form = "patch of " + n.Base.Hash.String()
	}
	d.fact("form", "%s", form)
	d.Columns = []string{"\tENTRY", "HOLDS", "HASH OR PATTERN", "HINT"}
	for _, e := range n.Entries {
		switch e.What {
		case "chunk":
			d.row(e.Index, e.What, e.Ref.Hash, hintText(e.Ref))
		default:
			d.row(e.Index, e.What, e.Pattern, "")
		}
	}
	return nil
}

// snapshotCalled finds a snapshot by its hash, as VM@N, by a VM (its head) or by a bundle.
func (h *Host) snapshotCalled(ctx context.Context, name string) (store.SnapshotID, error) {
	if id, err := cas.ParseHash(name); err == nil {
		return id, nil
	}
	vm, number, ok := strings.Cut(name, "@")
	if ok {
		n, err := strconv.Atoi(number)
		if err != nil {
			return store.SnapshotID{}, Errorf(CodeInvalid, "as in agent-1@3", "%q is no checkpoint", name)
		}
		c, err := h.store.Checkpoint(ctx, vm, n)
		return c.Snapshot, err
	}
	if v, err := h.store.VM(ctx, vm); err == nil && v.Head >= 0 {
		c, err := h.store.Checkpoint(ctx, vm, v.Head)
		return c.Snapshot, err
	}
	b, err := h.store.Bundle(ctx, name)
	return b.Snapshot, err
}

func (h *Host) debugSnapshot(ctx context.Context, name string, d *DebugDump) error {
	id, err := h.snapshotCalled(ctx, name)
	if err != nil {
		return err
	}
	sn, err := h.store.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	m := sn.Meta()
	d.fact("snapshot", "%s", id)
	d.fact("kind", "%s", m.Kind)
	d.fact("created", "%s", m.Created.Format("2006-01-02T15:04:05.000Z07:00"))
	d.fact("parent", "%s", sn.Parent())
	for _, k := range slices.Sorted(maps.Keys(m.Facts)) {
		d.fact(k, "%s", m.Facts[k])
	}
	d.Columns = []string{"IMAGE", "\tBYTES", "ROOT", "HINT"}
	for _, im := range sn.Roots() {
		root := im.Root.Hash.String()
		if im.Root.Hash.IsZero() {
			root = "all zeros"
		}
		d.row(im.Name, im.Bytes, root, hintText(im.Root))
	}
	return nil
}

func (h *Host) debugWhy(ctx context.Context, name string, d *DebugDump) error {
	hash, err := parseHash(name)
	if err != nil {
		return err
	}
	kept, err := h.store.Why(ctx, hash)
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		d.fact("kept by", "nothing: gc takes it, if it is there")
		return nil
	}
	d.Columns = []string{"KEPT BY", "IMAGE", "\tSLOT", "SNAPSHOT"}
	for _, k := range kept {
		slot, image := "node", k.Image
		if k.Slot >= 0 {
			slot = strconv.FormatInt(k.Slot, 10)
		}
		if image == "" {
			slot, image = "", "the record itself"
		}
		d.row(k.Name, image, slot, k.Snapshot)
	}
	return nil
}
