package buckettest

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong with a request.
type Kind string

// Faults that pass: a bucket tries again, and its caller sees none of them.
const (
	ResetBefore   Kind = "reset before" // the request never reaches the server
	ResetAfter    Kind = "reset after"  // it does, and its answer is lost
	Error500      Kind = "500"          // instead of the server
	Error500After Kind = "500 after"    // the server did what it was asked, and then broke
	SlowDown      Kind = "503 SlowDown" // instead of the server
	SlowBody      Kind = "slow body"    // the answer's body rests in its middle for Delay (0: 50 ms)
	TruncatedBody Kind = "truncated body"
	WrongBytes    Kind = "wrong bytes" // one flipped, of a put's body or of an answer's; of ranges only where Ranges is set
)

// Faults that don't: what a server lacks, or a host.
const (
	StaleList        Kind = "stale list"        // an earlier answer to the same list; empty where there was none
	ClockSkew        Kind = "clock skew"        // the server's clock is Delay before ours; beyond 15 minutes it refuses
	Denied           Kind = "denied"            // 403
	IgnoreConditions Kind = "ignore conditions" // 412 becomes success
	IgnoreChecksums  Kind = "ignore checksums"  // the refusal of a damaged put becomes success
	IgnoreRanges     Kind = "ignore ranges"     // the whole object comes
	TooLarge         Kind = "too large"         // bodies longer than Bytes are refused with 413
	Latency          Kind = "latency"           // Delay more
	WebPage          Kind = "web page"          // what answers isn't S3
)

// Passing are the faults a bucket gets over by itself.
var Passing = []Kind{ResetBefore, ResetAfter, Error500, Error500After, SlowDown, SlowBody, TruncatedBody, WrongBytes}

// Verbs are what requests are told apart by.
var Verbs = []string{"GET", "HEAD", "PUT", "DELETE", "LIST"}

// Fault is one thing that goes wrong, and when.
type Fault struct {
	Kind Kind
	Verb string // "": all
	Key  string // in the request's path; "": any

	From   int     // the first request it is for, of those that match; 0: the first
	Count  int     // how many from there on; 0: one; negative: all
	Chance float64 // instead of From and Count, if not 0: of each request that matches

	Delay  time.Duration
	Bytes  int64
	Ranges bool // WrongBytes: of ranges too
}

// Plan is what goes wrong. The same plan and the same order of requests give the same faults.
type Plan struct {
	Seed    uint64
	Latency time.Duration // of every request
	Faults  []Fault
}

// planner counts requests against a plan.
type planner struct {
	mu      sync.Mutex
	plan    Plan
	matched []int
	rng     *rand.Rand
}

func (p *planner) set(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.matched = plan, make([]int, len(plan.Faults))
	p.rng = rand.New(rand.NewPCG(plan.Seed, 0x6661756c74))
}

// next says what goes wrong with a request; at most one fault does, the first that applies.
func (p *planner) next(verb string, req *http.Request) (latency time.Duration, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, candidate := range p.plan.Faults {
		if (candidate.Verb != "" && candidate.Verb != verb) || !strings.Contains(req.URL.Path, candidate.Key) || !applies(candidate, verb, req) {
			continue
		}
		p.matched[i]++
		if f.Kind == "" && p.hits(candidate, p.matched[i]) {
			f = candidate
		}
	}
	return p.plan.Latency, f
}

func (p *planner) hits(f Fault, nth int) bool {
	if f.Chance > 0 {
		return p.rng.Float64() < f.Chance
	}
	from, count := max(f.From, 1), f.Count
	if count == 0 {
		count = 1
	}
	return nth >= from && (count < 0 || nth < from+count)
}

// applies leaves out what a fault can't be done to.
func applies(f Fault, verb string, req *http.Request) bool {
	ranged := req.Header.Get("Range") != ""
	switch f.Kind {
	case WrongBytes:
		return (verb == "GET" && (!ranged || f.Ranges)) || verb == "LIST" || (verb == "PUT" && req.ContentLength > 0)
	case TruncatedBody:
		return verb == "GET" || verb == "LIST" || (verb == "PUT" && req.ContentLength > 1)
	case SlowBody:
		return verb == "GET" || verb == "LIST"
	case StaleList:
		return verb == "LIST"
	case IgnoreRanges:
		return verb == "GET" && ranged
	case IgnoreConditions, IgnoreChecksums:
		return verb == "PUT"
	case TooLarge:
		return req.ContentLength > f.Bytes
	default:
		return true
	}
}

// happensTo: requests of the verb, or their answers, have what the fault spoils.
func (k Kind) happensTo(verb string) bool {
	switch k {
	case WrongBytes, TruncatedBody:
		return verb == "GET" || verb == "LIST" || verb == "PUT"
	case SlowBody:
		return verb == "GET" || verb == "LIST"
	default:
		return true
	}
}

// verbOf names a request.
func verbOf(req *http.Request) string {
	if req.Method == http.MethodGet && req.URL.Query().Has("list-type") {
		return "LIST"
	}
	return req.Method
}
