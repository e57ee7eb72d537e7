package s3_test

import (
	"fmt"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
)

// results is what each check says.
func results(checks []bucket.Check) map[string]bucket.Check {
	m := map[string]bucket.Check{}
	for _, c := range checks {
		m[c.Name] = c
	}
	return m
}

func TestProbeOfAGoodServerIsGreenAndLeavesNothing(t *testing.T) {
	b, _ := behind(t, buckettest.Plan{})
	checks := bucket.Probe(t.Context(), b)
	for _, c := range checks {
		if c.Result != bucket.OK || c.Evidence+c.Consequence+c.Remedy != "" {
			t.Errorf("%+v", c)
		}
	}
	if len(checks) != 10 {
		t.Errorf("%d checks", len(checks))
	}
	for info, err := range b.List(t.Context(), "") {
		t.Errorf("left: %+v, %v", info, err)
	}
}

func TestProbeSeesEachBrokenSemantics(t *testing.T) {
	for _, c := range []struct {
		fault buckettest.Fault
		red   []string // all others are ok, but for those not tried
	}{
		{buckettest.Fault{Kind: buckettest.IgnoreConditions}, []string{"put if absent", "put if unchanged"}},
		{buckettest.Fault{Kind: buckettest.StaleList}, []string{"list after write"}},
		{buckettest.Fault{Kind: buckettest.IgnoreRanges}, []string{"ranged get", "large put"}},
		{buckettest.Fault{Kind: buckettest.WrongBytes, Verb: "GET", Ranges: true, From: 1}, []string{"write and read back"}},
		{buckettest.Fault{Kind: buckettest.IgnoreChecksums}, []string{"checksum"}},
		{buckettest.Fault{Kind: buckettest.ClockSkew, Delay: 10 * time.Minute}, []string{"clock"}},
		{buckettest.Fault{Kind: buckettest.ClockSkew, Delay: -10 * time.Minute}, []string{"clock"}},
		{buckettest.Fault{Kind: buckettest.ClockSkew, Delay: time.Hour}, []string{"reach"}},
		{buckettest.Fault{Kind: buckettest.TooLarge, Bytes: 1 << 20}, []string{"large put"}},
		{buckettest.Fault{Kind: buckettest.Denied, Verb: "DELETE"}, []string{"delete"}},
		{buckettest.Fault{Kind: buckettest.Denied, Verb: "PUT"}, []string{"write and read back"}},
		{buckettest.Fault{Kind: buckettest.Denied, Verb: "LIST"}, []string{"reach"}},
		{buckettest.Fault{Kind: buckettest.WebPage}, []string{"reach"}},
	} {
		c.fault.Count = -1
		t.Run(fmt.Sprintf("%s %s %s", c.fault.Kind, c.fault.Verb, c.fault.Delay), func(t *testing.T) {
			b, _ := behind(t, buckettest.Plan{Faults: []buckettest.Fault{c.fault}})
			got := results(bucket.Probe(t.Context(), b))
			for _, name := range c.red {
				if g := got[name]; g.Result != bucket.Failed || g.Evidence == "" || g.Consequence == "" || g.Remedy == "" {
					t.Errorf("%+v", g)
				}
				delete(got, name)
			}
			for _, g := range got {
				if g.Result == bucket.Failed {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

func TestProbeDuringAnOutageAccusesNobody(t *testing.T) {
	c := config(t, server, "")
	p := buckettest.ProxyFor(t, server.Endpoint, buckettest.Plan{Faults: []buckettest.Fault{{Kind: buckettest.SlowDown, Verb: "PUT", From: 3, Count: -1}}})
	c.Endpoint, c.Tries = p.Endpoint, 1
	b := open(t, c)
	got := results(bucket.Probe(t.Context(), b))
	for _, name := range []string{"put if absent", "put if unchanged", "list after write", "large put"} {
		if g := got[name]; g.Result != bucket.Unknown || g.Evidence == "" {
			t.Errorf("%+v", g)
		}
	}
}
