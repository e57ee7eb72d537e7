package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
