package remote_test

import (
	"fmt"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/s3"
	"flash/cas/remote"
)

// A real server, and before it a proxy that lets one request in twenty go wrong in every way it knows, wrong bytes in ranges
// among them, which no protocol notices: uploads, reads, drops and checks succeed all the same.
func TestFaultsOfAServerCostTimeOnly(t *testing.T) {
	server := buckettest.ServerFor(t)
	plan := buckettest.Plan{Seed: 7}
	for _, kind := range buckettest.Passing {
		plan.Faults = append(plan.Faults, buckettest.Fault{Kind: kind, Chance: 0.007, Delay: 5 * time.Millisecond, Ranges: true})
	}
	proxy := buckettest.ProxyFor(t, server.Endpoint, plan)
	packs := somePacks(t, 1, 6, 300)
	for i, name := range []string{"plain", "sealed"} {
		t.Run(name, func(t *testing.T) {
			open := func() bucket.Bucket {
				s, err := s3.New(s3.Config{Endpoint: proxy.Endpoint, Bucket: server.Bucket, AccessKey: server.AccessKey,
					SecretKey: s3.Secret(server.SecretKey), Prefix: fmt.Sprint("remote/", i), BackOff: time.Millisecond, BackOffCap: 5 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				if name == "sealed" {
					return sealed(t, s)
				}
				return s
			}
			a := mustOpen(t, remote.Config{Bucket: open()})
			for _, p := range packs {
				mustUpload(t, a, []made{p})
			}
			b := mustOpen(t, remote.Config{Bucket: open(), CacheDir: t.TempDir(), CacheBytes: 4 * remote.WindowBytes})
			mustRead(t, b, packs)
			if _, err := a.Drop(t.Context(), []cas.PackID{packs[0].ID, packs[5].ID}); err != nil {
				t.Fatal(err)
			}
			mustRead(t, b, packs[1:5])
			mustRefresh(t, b)
			if n := len(b.Packs()); n != 4 {
				t.Errorf("%d packs", n)
			}
		})
	}
	faults := 0
	for _, kind := range buckettest.Passing {
		faults += proxy.Faults(kind)
	}
	if faults < 5 {
		t.Errorf("only %d faults", faults)
	}
}
