package buckettest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy stands before an S3 server and injects faults. Requests pass as they were signed: what a fault needs changed, it
// changes in the answer, or in bytes that no signature covers.
type Proxy struct {
	Endpoint string // http://127.0.0.1:port

	target  string
	base    *http.Transport
	server  *http.Server
	planner planner

	mu       sync.Mutex // guards the rest
	requests map[string]int
	faults   map[Kind]int
	lists    map[string][]byte // the last answer to each list
}

// StartProxy starts a proxy before target (http://host:port). Close it.
func StartProxy(target string, plan Plan) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Endpoint: "http://" + l.Addr().String(),
		target:   u.Host,
		base:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10},
		requests: map[string]int{}, faults: map[Kind]int{}, lists: map[string][]byte{},
	}
	p.server = &http.Server{Handler: p}
	p.planner.set(plan)
	go p.server.Serve(l) // until Close, which closes the listener
	return p, nil
}

// ProxyFor starts a proxy for a test, and ends it with the test.
func ProxyFor(t testing.TB, target string, plan Plan) *Proxy {
	t.Helper()
	p, err := StartProxy(target, plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Close ends the proxy and every request through it.
func (p *Proxy) Close() {
	p.server.Close()
	p.base.CloseIdleConnections()
}

// SetPlan replaces the plan; counting begins anew for its faults.
func (p *Proxy) SetPlan(plan Plan) { p.planner.set(plan) }

// Requests is how many requests of a verb came, of all verbs for "".
func (p *Proxy) Requests(verb string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if verb != "" {
		return p.requests[verb]
	}
	n := 0
	for _, of := range p.requests {
		n += of
	}
	return n
}

// Faults is how many faults of a kind were injected, of all kinds for "".
func (p *Proxy) Faults(kind Kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind != "" {
		return p.faults[kind]
	}
	n := 0
	for _, of := range p.faults {
		n += of
	}
	return n
}

// ServeHTTP passes one request on, or spoils it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	verb := verbOf(req)
	latency, f := p.planner.next(verb, req)
	p.mu.Lock()
	p.requests[verb]++
	if f.Kind != "" {
		p.faults[f.Kind]++
	}
	p.mu.Unlock()
	if f.Kind == Latency {
		latency += f.Delay
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-req.Context().Done():
			return
		}
	}
	if p.instead(w, req, f) {
		return
	}
	resp, err := p.forward(req, f)
	if err != nil {
		reset(w)
		return
	}
	defer resp.Body.Close()
	p.answer(w, req, resp, f, verb)
}

// instead answers in the server's place, where the fault says so.
func (p *Proxy) instead(w http.ResponseWriter, req *http.Request, f Fault) bool {
	refuse := func(status int, code, message string) bool {
		io.Copy(io.Discard, io.LimitReader(req.Body, 64<<20)) // else the client's write fails before it reads the answer
		refuseWith(w, req, status, code, message)
		return true
	}
	switch f.Kind {
	case ResetBefore:
		reset(w)
		return true
	case Error500:
		return refuse(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	case SlowDown:
		return refuse(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
	case Denied:
		return refuse(http.StatusForbidden, "AccessDenied", "Access Denied")
	case TooLarge:
		return refuse(http.StatusRequestEntityTooLarge, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size.")
	case ClockSkew:
		if f.Delay.Abs() <= 15*time.Minute {
			return false
		}
		w.Header().Set("Date", time.Now().Add(f.Delay).UTC().Format(http.TimeFormat))
		return refuse(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	case WebPage:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte("<html><body>It works!</body></html>"))
		return true
	case StaleList:
		p.mu.Lock()
		earlier, ok := p.lists[req.URL.RawQuery]
		p.mu.Unlock()
		if !ok {
			earlier = []byte(`<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>`)
		}
		w.Header().Set("Content-Type", "application/xml")
		w.Write(earlier)
		return true
	}
	return false
}

func refuseWith(w http.ResponseWriter, req *http.Request, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", "FAULT")
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message><RequestId>FAULT</RequestId></Error>`, code, message)
	}
}

// forward sends the request to the server, its body spoiled where the fault says so.
func (p *Proxy) forward(req *http.Request, f Fault) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", p.target, ""
	out.Host = req.Host // it is signed
	if req.ContentLength == 0 {
		out.Body = nil
	}
	if req.Method == http.MethodPut && req.ContentLength > 0 {
		switch f.Kind {
		case WrongBytes:
			out.Body = io.NopCloser(&flip{r: req.Body, at: req.ContentLength / 2})
		case TruncatedBody:
			out.Body = io.NopCloser(io.LimitReader(req.Body, req.ContentLength/2)) // the transport then breaks the connection
		}
	}
	return p.base.RoundTrip(out)
}

// flip changes one byte of a stream.
type flip struct {
	r  io.Reader
	at int64
}

func (f *flip) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if f.at >= 0 && f.at < int64(n) {
		b[f.at] ^= 0x20
	}
	f.at -= int64(n)
	return n, err
}
