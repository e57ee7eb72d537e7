package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/store"
	"flash/vmm/host"
)

// SoakConfig says how long and on what Soak runs.
type SoakConfig struct {
	Place  Place
	Guest  Guest
	Bundle string
	MemMiB int
	VMs    int           // at most at once; 0: 4
	For    time.Duration // of random operations; setting up and tearing down come on top
	Seed   uint64
	Step   func(string) // told what has been done so far; nil: silent
}

// Place is where hosts live and die. A life is from Open to Kill or Stop.
type Place interface {
	// Open begins a life and gives its API.
	Open(ctx context.Context) (host.API, error)
	// Kill ends the host and every machine at once, as a power cut would, whatever they are at. Nothing runs when it returns.
	Kill(ctx context.Context) error
	// Stop ends the host in order.
	Stop(ctx context.Context) error
	// KillMachine ends one VM's machine and nothing else.
	KillMachine(ctx context.Context, vm host.VM) error
	// Census counts what the host of this life holds of what could leak.
	Census(ctx context.Context) ([]Count, error)
	// Leftovers names what is still there of a host that has been stopped: processes, sockets, files, control groups.
	Leftovers(ctx context.Context) ([]string, error)
}

// Count is one quantity of a census, and how much more of it the end of a life may have than its beginning: caches fill.
type Count struct {
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	MayGrow int64  `json:"may_grow"`
	Detail  string `json:"-"` // what it is made of, for whoever looks for a leak
}

// SoakReport is what a soak did and found.
type SoakReport struct {
	Seed       uint64         `json:"seed"`
	Seconds    float64        `json:"seconds"`
	Operations map[string]int `json:"operations"` // that ended as they should
	Cut        map[string]int `json:"cut_short"`  // by a kill, and made good afterwards
	Looks      int            `json:"looks"`      // how often a guest was compared with the oracle
	Failures   []string       `json:"failures"`
	Leaks      []string       `json:"leaks"`
	Before     []Count        `json:"before"` // of the last life, with every VM stopped
	After      []Count        `json:"after"`
}

// Clean tells whether nothing was found.
func (r SoakReport) Clean() bool { return len(r.Failures) == 0 && len(r.Leaks) == 0 }

const (
	killingShare = 0.6 // of the time: lives end early in it; the rest is one life, whose leaks can be told
	families     = 2
	opLimit      = 4 * time.Minute // for one operation
	lastSteps    = 12              // of a family, told with a failure
)

// soak is one run.
//
// Lock order: gate → mu. Whoever uses a life has gate for reading; who ends one in order, or opens the next, for writing.
// A kill takes no lock: that is its point.
type soak struct {
	SoakConfig
	families []*family
	gate     sync.RWMutex
	life     *life

	mu     sync.Mutex // guards the rest
	report SoakReport
}

// life is one host, from its opening to its end.
type life struct {
	api    host.API
	number int
	killed atomic.Bool // set before it is
}

// Soak plays random operations on guests that are killed under them, alone and with their host, and compares every guest
// with an oracle of what it must remember. The error is about the soak itself; what it found is in the report.
func Soak(ctx context.Context, c SoakConfig) (SoakReport, error) {
	if c.VMs == 0 {
		c.VMs = 4
	}
	s := &soak{SoakConfig: c, report: SoakReport{Seed: c.Seed, Operations: map[string]int{}, Cut: map[string]int{}, Failures: []string{}, Leaks: []string{}}}
	began := time.Now()
	err := s.run(ctx)
	s.report.Seconds = time.Since(began).Seconds()
	var found failure
	if errors.As(err, &found) {
		s.report.Failures = append(s.report.Failures, err.Error())
		err = nil
	}
	return s.report, err
}

// failure is a promise that wasn't kept, unlike an error of the soak's own.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func failed(format string, args ...any) error { return failure{fmt.Errorf(format, args...)} }

func (s *soak) run(ctx context.Context) (err error) {
	if err := s.open(ctx, 1); err != nil {
		return err
	}
	defer func() {
		if err != nil { // what is left is of no interest, and must not stay
			err = errors.Join(err, s.Place.Kill(context.WithoutCancel(ctx)))
		}
	}()
	empty, err := s.life.api.GC(ctx, host.GCRequest{})
	if err != nil {
		return failed("gc before anything: %w", err)
	}
	for i := range min(families, s.VMs) {
		f := newFamily(s, i, s.VMs/min(families, s.VMs))
		s.families = append(s.families, f)
		if err := f.begin(ctx); err != nil {
			return err
		}
	}
	killing := time.Duration(float64(s.For) * killingShare)
	if err := s.play(ctx, killing, s.kills); err != nil {
		return err
	}
	if err := s.restart(ctx); err != nil {
		return err
	}
	if s.report.Before, err = s.atRest(ctx); err != nil {
		return err
	}
	if err := s.play(ctx, s.For-killing, nil); err != nil {
		return err
	}
	if s.report.After, err = s.atRest(ctx); err != nil {
		return err
	}
	s.report.Leaks = append(s.report.Leaks, grown(s.report.Before, s.report.After)...)
	return s.end(ctx, empty.Sweep.LiveBytes)
}

// open begins a life.
func (s *soak) open(ctx context.Context, number int) error {
	api, err := s.Place.Open(ctx)
	if err != nil {
		return failed("opening the host for life %d: %w", number, err)
	}
	s.life = &life{api: api, number: number}
	return nil
}

// play lets every family work for a while, beside something else that needs an end, if there is one.
func (s *soak) play(ctx context.Context, span time.Duration, beside func(ctx context.Context, until time.Time) error) error {
	until := time.Now().Add(span)
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range s.families {
		group.Go(func() error { return f.work(ctx, until) })
	}
	if beside != nil {
		group.Go(func() error { return beside(ctx, until) })
	}
	return group.Wait()
}

// kills ends lives at random instants, two of three by a kill, until time is up.
func (s *soak) kills(ctx context.Context, until time.Time) error {
	rng := rand.New(rand.NewPCG(s.Seed, 0))
	mean := min(time.Minute, s.For/8)
	for n := 0; ; n++ {
		wait := mean/2 + time.Duration(rng.Int64N(int64(mean)+1))
		if time.Now().Add(wait).After(until) {
			return nil
		}
		select {
		case <-time.After(wait): // an instant that nothing marks
		case <-ctx.Done():
			return ctx.Err()
		}
		if n%3 == 2 {
			if err := s.restart(ctx); err != nil {
				return err
			}
			continue
		}
		s.life.killed.Store(true)
		if err := s.Place.Kill(ctx); err != nil {
			return err
		}
		s.gate.Lock()
		err := s.open(ctx, s.life.number+1)
		s.gate.Unlock()
		if err != nil {
			return err
		}
		s.did("kill of daemon and machines")
	}
}

// restart ends a life in order and begins the next.
func (s *soak) restart(ctx context.Context) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if err := s.Place.Stop(ctx); err != nil {
		return failed("stopping the host in order: %w", err)
	}
	s.did("stop of the daemon")
	return s.open(ctx, s.life.number+1)
}

// atRest makes every family good and stops its VMs, counts what the host then holds, and starts them again.
func (s *soak) atRest(ctx context.Context) ([]Count, error) {
	for _, f := range s.families {
		if err := f.ready(ctx, s.life); err != nil {
			return nil, err
		}
		if err := f.eachVM(func(w *witness) error { return f.stop(ctx, w) }); err != nil {
			return nil, err
		}
	}
	counts, err := s.Place.Census(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range s.families {
		if err := f.eachVM(func(w *witness) error { return f.start(ctx, w) }); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// liveSlack is what an empty store may have more than before: bootable bundles don't change, bookkeeping does.
const liveSlack = 1 << 20

// end looks at the store as a whole, removes everything, and looks at what is left.
func (s *soak) end(ctx context.Context, emptyBytes int64) error {
	api := s.life.api
	checked, err := api.Check(ctx, host.CheckRequest{Read: 1})
	if err != nil {
		return failed("check at the end: %w", err)
	}
	if checked.Worst == store.Damage {
		return failed("check at the end: %+v", checked.Findings)
	}
	for _, f := range s.families {
		if err := f.eachVM(func(w *witness) error { return f.remove(ctx, w) }); err != nil {
			return err
		}
	}
	swept, err := api.GC(ctx, host.GCRequest{Apply: true})
	if err != nil {
		return failed("gc at the end: %w", err)
	}
	if grew := swept.Sweep.LiveBytes - emptyBytes; grew > liveSlack {
		s.report.Leaks = append(s.report.Leaks, fmt.Sprintf("store: %d bytes live after all VMs were removed, %d before there was one", swept.Sweep.LiveBytes, emptyBytes))
	}
	if err := s.Place.Stop(ctx); err != nil {
		return failed("stopping the host at the end: %w", err)
	}
	left, err := s.Place.Leftovers(ctx)
	for _, what := range left {
		s.report.Leaks = append(s.report.Leaks, "left behind: "+what)
	}
	return err
}

// grown names what there is more of than there may be.
func grown(before, after []Count) (leaks []string) {
	was := map[string]int64{}
	for _, c := range before {
		was[c.Name] = c.Value
	}
	for _, c := range after {
		if c.Value > was[c.Name]+c.MayGrow {
			leaks = append(leaks, fmt.Sprintf("%s: %d at first, %d at last, at most %d more are expected%s", c.Name, was[c.Name], c.Value, c.MayGrow, c.Detail))
		}
	}
	return leaks
}

func (s *soak) did(what string) { s.count(s.report.Operations, what) }

func (s *soak) count(in map[string]int, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in[what]++
	if s.Step != nil {
		total, cut := 0, 0
		for _, n := range s.report.Operations {
			total += n
		}
		for _, n := range s.report.Cut {
			cut += n
		}
		s.Step(fmt.Sprintf("%d operations, %d cut short, %d comparisons; life %d: %s", total, cut, s.report.Looks, s.life.number, what))
	}
}
