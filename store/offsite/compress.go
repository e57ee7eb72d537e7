package offsite

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A ledger is JSON and shrinks to a sixth.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(fmt.Sprintf("offsite: zstd refused constant options: %v", err))
	}
	return e
})

func compress(p []byte) []byte { return encoder().EncodeAll(p, nil) }

// decompress gives plainBytes, which the caller has bounded.
func decompress(p []byte, plainBytes int) ([]byte, error) {
	var frame zstd.Header
	if err := frame.Decode(p); err != nil {
		return nil, fmt.Errorf("zstd frame: %v: %w", err, ErrFormat)
	}
	if frame.HasFCS && frame.FrameContentSize != uint64(plainBytes) {
		return nil, fmt.Errorf("a zstd frame of %d bytes, want %d: %w", frame.FrameContentSize, plainBytes, ErrFormat)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		panic(fmt.Sprintf("offsite: zstd refused its options: %v", err))
	}
	defer d.Close()
	plain, err := d.DecodeAll(p, make([]byte, 0, plainBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd frame: %v: %w", err, ErrFormat)
	}
	if len(plain) != plainBytes {
		return nil, fmt.Errorf("a zstd frame of %d bytes, want %d: %w", len(plain), plainBytes, ErrFormat)
	}
	return plain, nil
}
