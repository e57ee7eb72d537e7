package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The steps of a probe: each is nil if what it tries is as flash needs it.

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
