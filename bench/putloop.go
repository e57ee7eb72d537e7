package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/cas/bucket"
	"flash/cas/bucket/s3"
	"flash/cas/remote"
)

// putLoop measures what the server takes without us: the same packs, put side by side.
func (r *awayRun) putLoop(ctx context.Context) (Figure, error) {
	paths, err := filepath.Glob(filepath.Join(r.home, "packs", "*.pack"))
	if err != nil || len(paths) == 0 {
		return Figure{}, fmt.Errorf("no packs in %s: %w", r.home, err)
	}
	var rates []float64
	for i := range r.Rounds {
		b, err := s3.New(s3.Config{Endpoint: r.server.Endpoint, Region: "us-east-1", Bucket: r.server.Bucket, Prefix: fmt.Sprintf("loop%d", i),
			AccessKey: r.server.AccessKey, SecretKey: s3.Secret(r.server.SecretKey)})
		if err != nil {
			return Figure{}, err
		}
		rate, err := putAll(ctx, b, paths)
		b.Close()
		if err != nil {
			return Figure{}, err
		}
		rates = append(rates, rate)
	}
	return figure("PUT loop of the same packs, nothing else", "MB/s", "", rates), nil
}

func putAll(ctx context.Context, b bucket.Bucket, paths []string) (megabytesPerSecond float64, err error) {
	total := int64(0)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(remote.DefaultInFlight) // as many as a push has in flight
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		total += info.Size()
		g.Go(func() error {
			_, err := b.Put(ctx, filepath.Base(path), f, info.Size(), bucket.Condition{})
			return err
		})
	}
	err = g.Wait()
	return float64(total) / 1e6 / time.Since(began).Seconds(), err
}
