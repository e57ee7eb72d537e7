// Package bucket says what object storage is to flash: named objects that are written whole, read by ranges, listed, and
// replaced only by who has seen their last state.
//
// Terms: a bucket is a flat space of keys below one location; an object is a key's bytes. A version is an opaque word for one
// state of an object (S3: its ETag). A condition makes a put depend on the state the object has.
//
// Invariants every implementation keeps (bucket/buckettest holds them):
//
//   - A put is visible whole or not at all, and on return to every later read and list, from any host.
//   - A conditional put of which the caller doesn't learn that it succeeded (a lost answer) succeeds when it is asked again:
//     where the condition fails, the object is compared with what was to be written.
//   - A failure that may pass (reset, timeout, 5xx, slow down) is retried inside, with capped back-off, until ctx ends or the
//     tries are used up; what comes back then is ErrUnavailable.
//   - Bytes that were damaged on the way are never returned as good where the protocol can tell.
//
// Keys are '/'-separated paths of printable ASCII without "..", "//", a leading or a trailing '/'.
package bucket

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Version is an opaque word for one state of an object. "" is no state.
type Version string

// Info is one object as a list shows it.
type Info struct {
	Key      string
	Bytes    int64
	Version  Version
	Modified time.Time // by the bucket's clock; never to be compared with ours
}

// Condition makes a put depend on the state its object has. The zero value asks for nothing. At most one field is set.
type Condition struct {
	Absent bool    // there is no such object
	Match  Version // it is in this state
}

// Bucket is object storage. All methods are safe for concurrent use.
type Bucket interface {
	// Get reads a whole object of at most limit bytes; a longer one is ErrTooLarge. ErrNotFound.
	Get(ctx context.Context, key string, limit int64) ([]byte, Version, error)
	// GetRange fills dst with the object's bytes from offset on. ErrNotFound; ErrShort when the object ends before dst is full.
	GetRange(ctx context.Context, key string, dst []byte, offset int64) error
	// Put writes the object's bytes, size of them from r, which may be read more than once. ErrCondition.
	Put(ctx context.Context, key string, r io.ReaderAt, size int64, c Condition) (Version, error)
	// Stat says what there is under a key. ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)
	// List yields the objects whose keys begin with prefix, ascending by key. It ends with the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. None of that key is no error.
	Delete(ctx context.Context, key string) error
	// Location names the bucket for people: s3://bucket/prefix or file:///path. It holds no secret.
	Location() string
}

// Kinds of failure a caller acts on.
var (
	ErrNotFound    = errors.New("no such object")
	ErrCondition   = errors.New("the object has changed meanwhile")
	ErrTooLarge    = errors.New("the object is larger than it may be")
	ErrShort       = errors.New("the object ends before the bytes asked for")
	ErrUnavailable = errors.New("the object storage can't be reached or doesn't answer")
	ErrDenied      = errors.New("the object storage refuses access")
	ErrNoBucket    = errors.New("there is no such bucket")
	ErrIntegrity   = errors.New("the object's bytes are not what was written") // a seal's or a checksum's refusal
	ErrUnsupported = errors.New("the object storage lacks something flash relies on")
)
