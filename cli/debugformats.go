package cli

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/bucket/seal"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store/manifest"
	"flash/store/offsite"
	"flash/vmm/host"
)

const dumpTime = "2006-01-02T15:04:05.000Z07:00"

// dump collects what an object holds.
type dump struct{ host.DebugDump }

func newDump(columns ...string) *dump {
	return &dump{host.DebugDump{Facts: []host.Fact{}, Columns: append([]string{}, columns...), Rows: [][]string{}}}
}

func (d *dump) fact(name, format string, args ...any) {
	d.Facts = append(d.Facts, host.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
}

func (d *dump) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable(fmt.Sprint(c), 0)
	}
	d.Rows = append(d.Rows, row)
}

// objectKinds are the formats, by how they begin. Each has one beginning of its own.
var objectKinds = []struct {
	begins string
	show   func(d *dump, p []byte) error
}{
	{"FLSEAL", showSealed},
	{"FLSHPACK", showPack},
	{"FLSHCATL", showCatalogue},
	{"FLASHREF", showOffsite},
	{"N\x01", showNode},
	{"S\x01", showSnapshot},
	{"H\x01", showHistory},
	{"{", showJSON},
}

var errNoObject = errors.New("it begins as no object of flash does")

// dumpObject tells an object's kind by its first bytes, and shows it.
func dumpObject(p []byte) (host.DebugDump, error) {
	d := newDump()
	for _, k := range objectKinds {
		if bytes.HasPrefix(p, []byte(k.begins)) {
			if err := k.show(d, p); err != nil {
				return d.DebugDump, host.Errorf(host.CodeCorrupt, "it is damaged, or of a later version; a copy may be whole", "an object of %d bytes: %w", len(p), err)
			}
			return d.DebugDump, nil
		}
	}
	return d.DebugDump, host.Errorf(host.CodeInvalid, "flash debug object shows what lies in a remote, as it lies there", "%d bytes, first %q: %w", len(p), p[:min(len(p), 16)], errNoObject)
}

func showSealed(d *dump, p []byte) error {
	o, err := seal.Inspect(p)
	if err != nil {
		return err
	}
	d.fact("kind", "encrypted object")
	d.fact("version", "%d", o.Version)
	d.fact("salt", "%x", o.Salt)
	d.fact("plain bytes", "%d, unless it was cut: that shows when it is opened", o.PlainBytes)
	d.fact("segments", "%d of %d bytes", o.Segments, o.SegmentBytes)
	return nil
}

// showJSON shows what says its kind in "flash".
func showJSON(d *dump, p []byte) error {
	var head struct{ Flash string }
	if err := json.Unmarshal(p, &head); err == nil && head.Flash != "" && head.Flash != "remote" {
		return showOffsite(d, p)
	}
	return showMarker(d, p)
}

func showOffsite(d *dump, p []byte) error {
	o, err := offsite.DumpObject(p)
	if err != nil {
		return err
	}
	d.fact("kind", "%s", o.Kind)
	for _, f := range o.Facts {
		d.fact(f[0], "%s", f[1])
	}
	d.Columns, d.Rows = append(d.Columns, o.Columns...), append(d.Rows, o.Rows...)
	if o.History != nil {
		d.history(o.History)
	}
	return nil
}

func showMarker(d *dump, p []byte) error {
	m, err := seal.DecodeMarker(p)
	if err != nil {
		return err
	}
	d.fact("kind", "marker of a remote")
	d.fact("format", "%d", m.Format)
	d.fact("id", "%s", m.ID)
	d.fact("created", "%s", m.Created.Format(time.RFC3339))
	d.fact("encrypted", "%v", m.Sealed())
	if !m.Sealed() {
		return nil
	}
	d.fact("cipher", "%s", m.Seal.Cipher)
	d.fact("check", "%x", m.Seal.Check)
	d.Columns = []string{"SLOT", "KIND", "CREATED", "KEY DERIVATION", "LABEL"}
	for _, s := range m.Seal.Slots {
		derived := "BLAKE3"
		if a := s.Argon2id; a != nil {
			derived = fmt.Sprintf("argon2id, %d × %d KiB, %d threads", a.Time, a.MemoryKiB, a.Threads)
		}
		d.row(s.ID, s.Kind, s.Created.Format(time.RFC3339), derived, s.Label)
	}
	return nil
}

func showPack(d *dump, p []byte) error {
	h, err := pack.ParseHeader(p)
	if err != nil {
		return err
	}
	d.fact("kind", "pack")
	d.fact("pack id", "%x", h.ID)
	d.fact("key id", "%08x", h.KeyID)
	d.fact("created", "%s", h.Created.Format(dumpTime))
	r := bytes.NewReader(p)
	end := int64(len(p))
	sealed, err := pack.OpenSealed(r, end)
	d.fact("sealed", "%v", err == nil)
	if err == nil {
		content := sealed.ContentHash.String()
		if err := sealed.CheckContent(); err != nil {
			content += ", which is wrong: " + err.Error()
		}
		d.fact("content hash", "%s", content)
		d.fact("plain bytes", "%d", sealed.PlainBytes)
		end = sealed.RecordsEnd
	}
	d.Columns = []string{"\tOFFSET", "\tBYTES", "\tPLAIN", "\tNAMED", "KIND", "CODEC", "HASH"}
	st, err := pack.Scan(r, end, func(f pack.Found) error {
		d.row(f.Offset, f.Bytes(), f.PlainBytes, f.NamedBytes, f.Kind, f.Codec, f.Hash)
		return nil
	})
	d.fact("damaged bytes", "%d", st.DamagedBytes+end-st.End)
	return err
}

func showCatalogue(d *dump, p []byte) error {
	keyID, contentHash, packs, err := remote.DecodeCatalogue(p)
	if err != nil {
		return err
	}
	d.fact("kind", "catalogue")
	d.fact("key id", "%08x", keyID)
	d.fact("content hash", "%s", contentHash)
	d.Columns = []string{"PACK", "PACK ID", "\tBYTES", "\tPLAIN", "\tCHUNKS", "CREATED"}
	for _, c := range packs {
		d.row(c.ContentHash, hex.EncodeToString(c.ID[:]), c.Bytes, c.PlainBytes, len(c.Entries), c.Created.UTC().Format(dumpTime))
	}
	return nil
}

func showNode(d *dump, p []byte) error {
	level := 0
	if len(p) > 3 {
		level = int(p[3])
	}
	n, err := manifest.DecodeNode(p, level)
	if err != nil {
		return err
	}
	d.fact("kind", "node")
	d.fact("level", "%d", level)
	if n.IsPatch() {
		d.fact("patch of", "%s", n.Base.Hash)
	}
	d.Columns = []string{"\tENTRY", "HOLDS", "HASH OR PATTERN"}
	for i, e := range n.Entries {
		if n.IsPatch() {
			i = int(n.Index[i])
		}
		switch e.Tag {
		case manifest.Same:
			pattern := e.Pattern()
			d.row(i, "same-filled", hex.EncodeToString(pattern[:]))
		case manifest.Chunk:
			d.row(i, "chunk", e.Hash)
		default:
			if n.IsPatch() {
				d.row(i, "zero", "")
			}
		}
	}
	return nil
}

func showSnapshot(d *dump, p []byte) error {
	s, err := manifest.DecodeSnapshot(p)
	if err != nil {
		return err
	}
	d.fact("kind", "snapshot record of a %s", s.Kind)
	d.fact("created", "%s", s.Created.Format(dumpTime))
	d.fact("parent", "%s", hashOrNone(s.Parent))
	for _, k := range slices.Sorted(maps.Keys(s.Facts)) {
		d.fact(k, "%s", s.Facts[k])
	}
	d.Columns = []string{"IMAGE", "\tBYTES", "ROOT"}
	for _, im := range s.Images {
		d.row(im.Name, im.Bytes, hashOrNone(im.Root.Hash))
	}
	return nil
}

func showHistory(d *dump, p []byte) error {
	h, err := manifest.DecodeHistory(p)
	if err != nil {
		return err
	}
	d.fact("kind", "history")
	d.history(h)
	return nil
}

func (d *dump) history(h *manifest.History) {
	d.fact("name in it", "%s", h.VM)
	d.fact("created", "%s", h.Created.Format(dumpTime))
	d.fact("boots from", "%s", hashOrNone(h.Bundle))
	d.fact("head", "%s", numberOrNone(h.Head))
	d.fact("next number", "%d", h.Next)
	d.fact("spec", "%s", h.Spec)
	d.fact("retention", "%s", h.Retention)
	d.fact("ledger", "%d entries", len(h.Ledger))
	if n := len(h.Ledger); n > 0 {
		d.fact("ledger's end", "number %d, %s", h.Ledger[n-1].Seq, h.Ledger[n-1].Hash)
	}
	d.Columns = []string{"\tNUMBER", "\tPARENT", "SNAPSHOT", "CREATED", "PINNED", "FROM", "LABEL"}
	for _, c := range h.Checkpoints {
		from := ""
		if c.FromVM != "" {
			from = fmt.Sprintf("%s@%d", c.FromVM, c.FromNumber)
		}
		d.row(c.Number, numberOrNone(c.Parent), c.Snapshot, c.Created.Format(dumpTime), c.Pinned, from, c.Label)
	}
}

func numberOrNone(n int) string {
	if n == manifest.NoCheckpoint {
		return "none"
	}
	return fmt.Sprint(n)
}

func hashOrNone(h cas.Hash) string {
	if h.IsZero() {
		return "none"
	}
	return h.String()
}
