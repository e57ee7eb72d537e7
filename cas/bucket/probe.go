package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Result is what a check has found.
type Result string

const (
	OK      Result = "ok"
	Failed  Result = "failed"
	Unknown Result = "unknown" // it couldn't be tried, or its outcome says nothing
)

// Check is one thing that flash relies on, and whether a bucket has it.
type Check struct {
	Name        string `json:"name"`
	Result      Result `json:"result"`
	Evidence    string `json:"evidence,omitempty"`    // what was seen, where it isn't ok
	Consequence string `json:"consequence,omitempty"` // of its lack
	Remedy      string `json:"remedy,omitempty"`
}

// Skewed is a bucket that knows its server's clock.
type Skewed interface {
	// ClockSkew is how far the server's clock is before ours.
	ClockSkew() (skew time.Duration, known bool)
}

// Guarded is a bucket whose server can be asked whether it refuses bytes that were damaged on the way.
type Guarded interface {
	// RefusesDamage puts an object with a wrong checksum under a key, and is nil if that was refused.
	RefusesDamage(ctx context.Context, key string) error
}

// largeBytes is the size of the largest packs.
const largeBytes = 32 << 20

// maxSkew is how far the clocks may differ: S3 refuses requests at 15 minutes.
const maxSkew = 5 * time.Minute

// Probe tries on a bucket everything that flash relies on, below probe/ and a name of its own, and cleans up. It moves some
// 32 MiB up. It has an answer for each check, whatever goes wrong.
func Probe(ctx context.Context, b Bucket) []Check {
	p := &probe{b: b, folder: "probe/" + strings.ToLower(rand.Text()[:16]) + "/"}
	steps := []struct {
		name                string
		needed              bool // without it the others can't be tried
		run                 func(context.Context, *probe) error
		consequence, remedy string
	}{
		{"reach", true, reach,
			"nothing works", "check endpoint, bucket, region and credentials"},
		{"write and read back", true, writeAndRead,
			"nothing can be pushed", "allow these credentials to put and get objects; use a server that is consistent after a write"},
		{"put if absent", false, putIfAbsent,
			"two hosts can claim the same VM, and one's checkpoints are lost", "use a server that honours If-None-Match on PUT (Amazon S3, MinIO, versitygw, Cloudflare R2, Ceph)"},
		{"put if unchanged", false, putIfUnchanged,
			"two hosts can move the same VM's history, and one's checkpoints are lost", "use a server that honours If-Match on PUT (Amazon S3, MinIO, versitygw, Cloudflare R2, Ceph)"},
		{"list after write", false, listAfterWrite,
			"a push may not be seen by other hosts, and gc may not see what still needs a pack", "turn off caches between flash and the server; use a server whose lists are consistent"},
		{"ranged get", false, rangedGet,
			"a VM can't wake lazily: every page would cost a whole pack", "let the proxy or gateway before the server pass Range through"},
		{"checksum", false, checksum,
			"a put that was damaged on the way is only noticed when it is read, by the chunks' hashes", "use https, and a server that checks Content-MD5 or x-amz-checksum-crc32c"},
		{"clock", false, clock,
			"at 15 minutes the server refuses every request", "set this host's clock (NTP)"},
		{"large put", false, largePut,
			"packs can't be uploaded", "let the server, and the proxy or gateway before it, take bodies of 64 MiB (nginx: client_max_body_size)"},
		{"delete", false, deletes,
			"gc frees nothing, and leases pile up", "allow these credentials to delete objects"},
	}
	var checks []Check
	blocked := ""
	for _, s := range steps {
		c := Check{Name: s.name, Result: OK, Consequence: s.consequence, Remedy: s.remedy}
		if blocked != "" {
			c.Result, c.Evidence = Unknown, "not tried, because of: "+blocked
		} else {
			c.judge(s.run(ctx, p), s.needed)
			if s.needed && c.Result != OK {
				blocked = s.name
			}
		}
		if c.Result == OK {
			c.Consequence, c.Remedy = "", ""
		}
		checks = append(checks, c)
	}
	if left := p.cleanUp(ctx); left != nil {
		last := &checks[len(checks)-1]
		if last.Result == OK {
			last.Consequence, last.Remedy = "gc frees nothing, and leases pile up", "allow these credentials to delete objects"
		}
		last.Result = Failed
		last.Evidence = strings.TrimPrefix(last.Evidence+"; "+left.Error(), "; ")
	}
	return checks
}

// judge turns a step's outcome into a result. A failure that may pass says nothing about what the server can do.
func (c *Check) judge(err error, needed bool) {
	if err == nil {
		return
	}
	c.Result, c.Evidence = Failed, err.Error()
	passing := errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, errCannotTell) || (passing && !needed) {
		c.Result = Unknown
	}
}

var errCannotTell = errors.New("this bucket can't tell")

// probe is one run of the checks.
type probe struct {
	b      Bucket
	folder string
	keys   map[string]bool // that may be there
}

func (p *probe) key(name string) string {
	if p.keys == nil {
		p.keys = map[string]bool{}
	}
	p.keys[p.folder+name] = true
	return p.folder + name
}

func (p *probe) put(ctx context.Context, key, data string, c Condition) (Version, error) {
	return p.b.Put(ctx, key, strings.NewReader(data), int64(len(data)), c)
}

// refused is nil if a put was refused because of its condition, and what it was to be wasn't written.
func (p *probe) refused(ctx context.Context, what, key string, c Condition) error {
	const intruder = "this must not be written"
	_, err := p.put(ctx, key, intruder, c)
	switch {
	case err == nil:
		return fmt.Errorf("%s was accepted", what)
	case !errors.Is(err, ErrCondition):
		return err
	}
	data, _, err := p.b.Get(ctx, key, 1<<10)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if string(data) == intruder {
		return fmt.Errorf("%s was refused, and yet written", what)
	}
	return nil
}

// cleanUp deletes what the checks have written, even when ctx has ended.
func (p *probe) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for key := range p.keys {
		if err := p.b.Delete(ctx, key); err != nil {
			return fmt.Errorf("objects of this probe are left below %s: %w", p.folder, err)
		}
	}
	return nil
}

func reach(ctx context.Context, p *probe) error {
	for _, err := range p.b.List(ctx, p.folder) {
		return err
	}
	return nil
}

func writeAndRead(ctx context.Context, p *probe) error {
	key := p.key("object")
	for _, data := range []string{"one", "two and more"} {
		v, err := p.put(ctx, key, data, Condition{})
		if err != nil {
			return err
		}
		got, read, err := p.b.Get(ctx, key, 1<<10)
		if err != nil {
			return err
		}
		if string(got) != data || read != v {
			return fmt.Errorf("%q was written at version %s, %q was read at version %s", data, v, got, read)
		}
		info, err := p.b.Stat(ctx, key)
		if err != nil {
			return err
		}
		if info.Bytes != int64(len(data)) || info.Version != v {
			return fmt.Errorf("%d bytes were written at version %s, stat says %d at %s", len(data), v, info.Bytes, info.Version)
		}
	}
	return nil
}

func putIfAbsent(ctx context.Context, p *probe) error {
	key := p.key("absent")
	if _, err := p.put(ctx, key, "first", Condition{Absent: true}); err != nil {
		return err
	}
	return p.refused(ctx, "a put of an object that must not be there, and is", key, Condition{Absent: true})
}

func putIfUnchanged(ctx context.Context, p *probe) error {
	key := p.key("match")
	v1, err := p.put(ctx, key, "first", Condition{})
	if err != nil {
		return err
	}
	v2, err := p.put(ctx, key, "second", Condition{Match: v1})
	if err != nil {
		return fmt.Errorf("a put over the very version it expects: %w", err)
	}
	if v1 == v2 {
		return fmt.Errorf("two contents have the same version %s", v1)
	}
	if err := p.refused(ctx, "a put over a version that has passed", key, Condition{Match: v1}); err != nil {
		return err
	}
	return p.refused(ctx, "a put over an object that isn't there", p.key("gone"), Condition{Match: v1})
}

func listAfterWrite(ctx context.Context, p *probe) error {
	folder := p.folder + "list/"
	for n := 1; n <= 3; n++ {
		if _, err := p.put(ctx, p.key(fmt.Sprintf("list/%d", n)), "x", Condition{}); err != nil {
			return err
		}
		if err := p.wantListed(ctx, folder, n); err != nil {
			return err
		}
	}
	v, err := p.put(ctx, folder+"2", "changed", Condition{})
	if err != nil {
		return err
	}
	n := 0
	for info, err := range p.b.List(ctx, folder) {
		if err != nil {
			return err
		}
		if n++; n == 2 && (info.Version != v || info.Bytes != 7) {
			return fmt.Errorf("after an overwrite, the list still shows %d bytes at version %s", info.Bytes, info.Version)
		}
	}
	return nil
}

func (p *probe) wantListed(ctx context.Context, folder string, want int) error {
	listed := 0
	for _, err := range p.b.List(ctx, folder) {
		if err != nil {
			return err
		}
		listed++
	}
	if listed != want {
		return fmt.Errorf("%d objects are there, the list shows %d", want, listed)
	}
	return nil
}

func rangedGet(ctx context.Context, p *probe) error {
	key := p.key("range")
	data := make([]byte, 100_000)
	pattern{}.ReadAt(data, 0)
	if _, err := p.b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), Condition{}); err != nil {
		return err
	}
	for _, r := range [][2]int{{0, 10}, {4096, 65_536}, {99_999, 1}} {
		got := make([]byte, r[1])
		if err := p.b.GetRange(ctx, key, got, int64(r[0])); err != nil {
			return err
		}
		if !bytes.Equal(got, data[r[0]:][:r[1]]) {
			return fmt.Errorf("%d bytes at %d aren't what was written", r[1], r[0])
		}
	}
	if err := p.b.GetRange(ctx, key, make([]byte, 2), 99_999); !errors.Is(err, ErrShort) {
		return fmt.Errorf("a range over the object's end: %w", errors.Join(errNotShort, err))
	}
	return nil
}

var errNotShort = errors.New("it wasn't refused as too short")

func checksum(ctx context.Context, p *probe) error {
	g, ok := p.b.(Guarded)
	if !ok {
		return errCannotTell
	}
	return g.RefusesDamage(ctx, p.key("damaged"))
}

func clock(_ context.Context, p *probe) error {
	s, ok := p.b.(Skewed)
	if !ok {
		return errCannotTell
	}
	skew, known := s.ClockSkew()
	switch {
	case !known:
		return errCannotTell
	case skew > maxSkew:
		return fmt.Errorf("this host's clock is %s behind the server's", skew.Round(time.Second))
	case skew < -maxSkew:
		return fmt.Errorf("this host's clock is %s ahead of the server's", -skew.Round(time.Second))
	}
	return nil
}

func largePut(ctx context.Context, p *probe) error {
	key := p.key("large")
	if _, err := p.b.Put(ctx, key, pattern{}, largeBytes, Condition{Absent: true}); err != nil {
		return err
	}
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for _, offset := range []int64{0, largeBytes/2 - 11, largeBytes - int64(len(got))} {
		if err := p.b.GetRange(ctx, key, got, offset); err != nil {
			return err
		}
		pattern{}.ReadAt(want, offset)
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes at %d of %d aren't what was written", len(got), offset, int64(largeBytes))
		}
	}
	return nil
}

func deletes(ctx context.Context, p *probe) error {
	for _, name := range []string{"list/1", "list/2", "list/3"} {
		if err := p.b.Delete(ctx, p.key(name)); err != nil {
			return err
		}
		if _, err := p.b.Stat(ctx, p.key(name)); !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("after its delete, an object is still there (stat: %v)", err)
		}
	}
	return p.wantListed(ctx, p.folder+"list/", 0)
}

// pattern is endless bytes that can't be compressed away or shifted unnoticed.
type pattern struct{}

func (pattern) ReadAt(p []byte, offset int64) (int, error) {
	for i := range p {
		x := uint64(offset+int64(i)) * 0x9e3779b97f4a7c15
		p[i] = byte(x >> 56)
	}
	return len(p), nil
}

var _ io.ReaderAt = pattern{}
