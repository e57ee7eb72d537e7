package buckettest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"flash/cas/bucket/buckettest"
)

// backend answers everything with a text, and counts.
func backend(t *testing.T) (*httptest.Server, *int) {
	t.Helper()
	n := new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		*n++
		io.WriteString(w, "the server's <answer>")
	}))
	t.Cleanup(s.Close)
	return s, n
}

func TestProxyInjectsWhatThePlanSaysAndCounts(t *testing.T) {
	s, reached := backend(t)
	ask := func(p *buckettest.Proxy, method, path string) (status int, body string, err error) {
		req, err := http.NewRequest(method, p.Endpoint+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.GetBody = nil // net/http would try again by itself
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data), err
	}
	for _, c := range []struct {
		kind    buckettest.Kind
		status  int // 0: the connection breaks
		reaches int
		body    string // in it, if not ""
	}{
		{buckettest.ResetBefore, 0, 0, ""},
		{buckettest.ResetAfter, 0, 1, ""},
		{buckettest.Error500, 500, 0, "InternalError"},
		{buckettest.Error500After, 500, 1, "InternalError"},
		{buckettest.SlowDown, 503, 0, "SlowDown"},
		{buckettest.Denied, 403, 0, "AccessDenied"},
		{buckettest.TooLarge, 413, 0, "EntityTooLarge"},
		{buckettest.WebPage, 200, 0, "<html>"},
		{buckettest.Latency, 200, 1, "the server's"},
	} {
		p := buckettest.ProxyFor(t, s.URL, buckettest.Plan{Faults: []buckettest.Fault{{Kind: c.kind, Verb: "PUT", Key: "/b/k", From: 2}}})
		*reached = 0
		for _, harmless := range [][2]string{{"PUT", "/b/k"}, {"PUT", "/b/other"}, {"DELETE", "/b/k"}} { // first, other key, other verb
			if status, body, err := ask(p, harmless[0], harmless[1]); status != 200 || body != "the server's <answer>" {
				t.Errorf("%s: %v: %d %q %v", c.kind, harmless, status, body, err)
			}
		}
		*reached = 0
		status, body, err := ask(p, "PUT", "/b/k")
		if status != c.status || (err != nil) != (c.status == 0) || !strings.Contains(body, c.body) || *reached != c.reaches {
			t.Errorf("%s: %d %q %v; it reached the server %d times", c.kind, status, body, err, *reached)
		}
		if p.Faults(c.kind) != 1 || p.Faults("") != 1 || p.Requests("PUT") != 3 || p.Requests("") != 4 {
			t.Errorf("%s: %d faults, %d requests", c.kind, p.Faults(""), p.Requests(""))
		}
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	s, _ := backend(t)
	pattern := func(seed uint64) (statuses []int) {
		p := buckettest.ProxyFor(t, s.URL, buckettest.Plan{Seed: seed, Faults: []buckettest.Fault{{Kind: buckettest.Error500, Chance: 0.5}}})
		for range 40 {
			resp, err := http.Get(p.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			statuses = append(statuses, resp.StatusCode)
		}
		return statuses
	}
	one := pattern(1)
	if !slices.Equal(one, pattern(1)) {
		t.Error("the same seed gives other faults")
	}
	if slices.Equal(one, pattern(2)) {
		t.Error("another seed gives the same faults")
	}
}

func TestLatencyIsAddedToEveryRequest(t *testing.T) {
	s, _ := backend(t)
	p := buckettest.ProxyFor(t, s.URL, buckettest.Plan{Latency: 30 * time.Millisecond})
	start := time.Now()
	resp, err := http.Get(p.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}
