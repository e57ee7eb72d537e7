package offsite

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"flash/cas"
)

const (
	objectFormat = 1
	// maxObjectBytes bounds leases, holds and the list of condemned packs: some 100,000 packs, which are 3 TB.
	maxObjectBytes = 16 << 20
)

// object begins every JSON object of ours: what it is and in which version.
type object struct {
	Flash  string `json:"flash"`
	Format int    `json:"format"`
}

func (o object) header() object { return o }

// encodeObject gives an object's bytes.
func encodeObject(v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("offsite: %T can't be encoded: %v", v, err)) // it is made of strings and numbers
	}
	return p
}

// decodeObject reads what encodeObject wrote, and refuses another kind, another version, fields it doesn't know, and more
// behind it.
func decodeObject(p []byte, kind string, into interface{ header() object }) error {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	var head struct{ object }
	if err := json.Unmarshal(p, &head); err != nil {
		return fmt.Errorf("%s: %w: %w", kind, err, ErrFormat)
	}
	if head.Flash != kind || head.Format != objectFormat {
		return fmt.Errorf("%s: it says it is %.40q in format %d, this program knows %d: %w", kind, head.Flash, head.Format, objectFormat, ErrFormat)
	}
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w: %w", kind, err, ErrFormat)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s: there is something behind it: %w", kind, ErrFormat)
	}
	return nil
}

// packID is a cas.PackID in JSON: 32 hex digits.
type packID cas.PackID

func (p packID) String() string               { return hex.EncodeToString(p[:]) }
func (p packID) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *packID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(p) {
		return fmt.Errorf("pack id %.40q: want %d hex digits", text, 2*len(p))
	}
	_, err := hex.Decode(p[:], text)
	return err
}
