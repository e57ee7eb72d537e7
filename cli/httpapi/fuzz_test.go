package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// Whatever is asked of any route, the answer is what was wanted, or an error that says so: never a panic, never nothing.
func FuzzRequest(f *testing.F) {
	routes := New(Config{API: &scripted{}}).table()
	for i, seed := range []string{
		`{"id":"a","bundle":"b","vcpus":1,"mem_mib":64,"checkpoints":true,"ports":[{"host":1,"guest":2}]}`, `{"from":{"flashvm":"a","checkpoint":3},"count":2,"ids":["x"]}`,
		`{"checkpoint":3}`, `{"state":"stopped","discard":true}`, `{"label":"x","pin":true,"request_id":"r"}`, `{"pinned":false}`,
		`{"argv":["a"],"env":["A=b"],"stdin":"eA==","timeout_ms":5,"rows":1,"checkpoint":null}`, `{"attach_stdin":true}`, `{"build":{"kind":"busybox"}}`, `{"import":{"path":"/x"}}`,
		`{"apply":true,"flashvms":["a"],"retention":{"keep_last":1},"save":true}`, `{"read":0.05,"repair":false}`, `{"from":`, `[]`, "",
	} {
		for r := range routes {
			f.Add(uint8(r), "agent-1", "3", "from=1&to=2&path=/x&follow=true&force=1", seed, i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, r uint8, id, last, query, body string, upgrade bool) {
		rt := routes[int(r)%len(routes)]
		path := strings.NewReplacer("{vm_id}", url.PathEscape(id), "{n}", url.PathEscape(last), "{exec_id}", url.PathEscape(last), "{name}", url.PathEscape(last), "{what}", url.PathEscape(last)).Replace(rt.path)
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Skip("no address")
		}
		u.RawQuery = query
		req := httptest.NewRequest(rt.method, "http://flash/", strings.NewReader(body))
		req.URL, req.RequestURI = u, u.RequestURI()
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", Protocol)
		}
		w := httptest.NewRecorder()
		New(Config{API: &scripted{
			exec: func(context.Context, guest.Streams) (host.ExecResult, error) { return host.ExecResult{}, nil },
			in:   func(tar io.Reader) error { _, err := io.Copy(io.Discard, tar); return err },
			out:  func(context.Context, io.Writer) error { return nil },
		}}).ServeHTTP(w, req)
		if strings.Contains(w.Body.String(), "a bug in") {
			t.Fatalf("%s %s: %s", rt.method, u, w.Body)
		}
		if w.Code >= 400 {
			var e ErrorBody
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == nil || e.Error.Code == "" || e.Error.Message == "" {
				t.Fatalf("%s %s: %d %q", rt.method, u, w.Code, w.Body)
			}
		}
	})
}

// replyWith answers every request with the same.
type replyWith struct {
	status int
	body   []byte
	header http.Header
}

func (r replyWith) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: r.status, Header: r.header, Trailer: r.header, Body: io.NopCloser(bytes.NewReader(r.body)), Request: req}, nil
}

// Whatever a server answers, a client's calls end, with an error where the answer is none.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","state":"running","head":3}`, `[{"id":"a"}]`, `{"error":{"code":"vm_not_found","message":"m","remedy":"r"}}`, `{"error":{"code":""}}`, `{"error":null}`, "<html>", "",
		`{"progress":{"step":"s","done":1,"total":2}}` + "\n" + `{"bundle":{"name":"b"}}` + "\n", `{"progress":null}` + "\n" + `{"error":{"code":"corrupt"}}`,
	} {
		f.Add(uint16(200), []byte(seed), seed)
		f.Add(uint16(404), []byte(seed), "")
	}
	f.Fuzz(func(t *testing.T, status uint16, body []byte, trailer string) {
		c := NewClient("/nowhere")
		defer c.Close()
		c.http = &http.Client{Transport: replyWith{100 + int(status)%500, body, http.Header{errorTrailer: {trailer}}}}
		ctx := t.Context()
		failed := func(err error) bool {
			if err != nil && ErrorOf(err).Code == "" {
				t.Fatalf("an error without a code: %v", err)
			}
			return err != nil
		}
		_, err := c.List(ctx)
		refused := failed(err)
		if code := 100 + int(status)%500; code >= 300 && !refused {
			t.Fatalf("status %d is no failure", code)
		}
		_, err = c.Get(ctx, "a")
		failed(err)
		_, err = c.BuildBundle(ctx, host.BuildRequest{Kind: "busybox"}, func(host.Progress) {})
		failed(err)
		failed(c.CopyOut(ctx, "a", "/x", io.Discard))
		failed(c.Logs(ctx, "a", false, io.Discard))
	})
}
