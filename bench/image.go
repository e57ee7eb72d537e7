package bench

import (
	"context"
	"errors"
	"os"

	"flash/cas"
	"flash/store"
)

// WriteImage writes an image as a file, its zeros as holes.
func WriteImage(ctx context.Context, image *store.Image, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(int64(image.Bytes())); err != nil {
		return err
	}
	page := make([]byte, cas.SlotBytes)
	for slot := range image.Slots() {
		zero, err := image.IsZero(ctx, slot)
		if err != nil {
			return err
		}
		if zero {
			continue
		}
		if err := image.ReadSlot(ctx, slot, page); err != nil {
			return err
		}
		if _, err := f.WriteAt(page, int64(slot)*cas.SlotBytes); err != nil {
			return err
		}
	}
	return nil
}
