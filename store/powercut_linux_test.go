package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/castest/lossy"
	"flash/cas/local"
)

var cutSeconds = flag.Float64("cutseconds", 12, "how long the power-cut test goes on")

const (
	cutWorkVariable  = "STORE_TEST_CUT_WORK"
	cutCheckVariable = "STORE_TEST_CUT_CHECK"
	cutSeedVariable  = "STORE_TEST_CUT_SEED"
)

// workPatience is for a worker that doesn't end by itself when everything fails.
const workPatience = 30 * time.Second

// oracle is what was acknowledged, by VM.
type oracle map[string]*oracleVM

type oracleVM struct {
	Head   int                 `json:"head"`
	Points map[int]oraclePoint `json:"points"`
}

type oraclePoint struct {
	Snapshot cas.Hash `json:"snapshot"`
	Mem      cas.Hash `json:"mem"` // of its bytes
	Pinned   bool     `json:"pinned"`
}

// said is a line of the process that works: what it is about to do, or has done.
type said struct {
	Did string `json:"did"` // try, ack
	Op  string `json:"op"`  // create checkpoint head pin delete gc
	VM  string `json:"flashvm"`
	N   int    `json:"checkpoint"`
	oraclePoint
}

func (o oracle) apply(l said) {
	switch v := o[l.VM]; l.Op {
	case "create":
		o[l.VM] = &oracleVM{Head: -1, Points: map[int]oraclePoint{}}
	case "checkpoint":
		v.Points[l.N], v.Head = l.oraclePoint, l.N
	case "head":
		v.Head = l.N
	case "pin":
		p := v.Points[l.N]
		p.Pinned = true
		v.Points[l.N] = p
	case "delete":
		delete(o, l.VM)
	}
}

// Power cuts at any moment, under Badger's files and the packs, lose nothing that was acknowledged, and the store opens.
func TestAPowerCutLosesNothingAcknowledged(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	mountDir := t.TempDir()
	if unmount, err := lossy.Mount(mountDir, castest.NewCrashFS(1)); err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatal(err)
		}
		t.Skipf("no lossy disk: %v", err)
	} else if err := unmount(); err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, mount: mountDir, rng: rand.New(rand.NewPCG(seed, 8)), disk: castest.NewCrashFS(seed), known: oracle{}}
	cuts, acknowledged := 0, 0
	defer func() {
		t.Logf("%d cuts, %d operations acknowledged; seed %d", cuts, acknowledged, seed)
	}()
	for end := time.Now().Add(time.Duration(*cutSeconds * float64(time.Second))); time.Now().Before(end); cuts++ {
		acks, pending := c.work()
		acknowledged += len(acks)
		for _, l := range acks {
			c.known.apply(l)
		}
		c.disk = c.disk.AfterCrash()
		c.check(pending)
	}
	if cuts > 5 && acknowledged == 0 {
		t.Error("nothing was ever acknowledged")
	}
}

type cutter struct {
	t     *testing.T
	mount string
	rng   *rand.Rand
	disk  *castest.CrashFS
	known oracle
}

// work lets a process work on the disk until the power is cut, and gives what it acknowledged and what it was doing.
func (c *cutter) work() (acks []said, pending *said) {
	t := c.t
	t.Helper()
	unmount, err := lossy.Mount(c.mount, c.disk)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	}()
	// Most cuts hit what opening does, or the work after it; some let it close in order.
	c.disk.CutAt(1 + c.rng.IntN(1<<(4+c.rng.IntN(8))))
	ctx, cancel := context.WithTimeout(context.Background(), workPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), cutWorkVariable+"="+c.mount, fmt.Sprintf("%s=%d", cutSeedVariable, c.rng.Uint64()))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // where everything fails a worker may try for ever
		for ctx.Err() == nil && !c.disk.HasCut() {
			time.Sleep(time.Millisecond)
		}
		cmd.Process.Kill()
	}()
	acks, pending = listen(t, out)
	err = cmd.Wait()
	if !c.disk.HasCut() && err != nil {
		t.Fatalf("the power was there, and the worker failed: %v\n%s", err, stderr.String())
	}
	return acks, pending
}

func listen(t *testing.T, out io.Reader) (acks []said, pending *said) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var l said
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // half a line, by one that was killed
		}
		if pending = &l; l.Did == "ack" {
			acks, pending = append(acks, l), nil
		}
	}
	return acks, pending
}

// check compares what the disk has with what was acknowledged, in a process of its own, for a database may kill it. What
// was being done may be there or not, and is known afterwards.
func (c *cutter) check(pending *said) {
	t := c.t
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir)
	if err := copyDisk(c.disk, "/", dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cutCheckVariable+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the store can't be opened and checked after the cut: %v\n%s", err, stderr.String())
	}
	found := oracle{}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	for _, vm := range slices.Sorted(maps.Keys(union(c.known, found))) {
		if pending != nil && pending.VM == vm {
			mustBeOneOf(t, vm, c.known[vm], found[vm], *pending)
		} else if !same(c.known[vm], found[vm]) {
			t.Fatalf("%s is %s, acknowledged was %s; pending %+v", vm, text(found[vm]), text(c.known[vm]), pending)
		}
	}
	c.known = found
}

func union(a, b oracle) oracle {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func same(a, b *oracleVM) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Head == b.Head && maps.Equal(a.Points, b.Points))
}

func text(v *oracleVM) string { p, _ := json.Marshal(v); return string(p) }

// mustBeOneOf lets a VM be as it was acknowledged, or as what was pending makes it.
func mustBeOneOf(t *testing.T, vm string, known, found *oracleVM, pending said) {
	t.Helper()
	if same(known, found) {
		return
	}
	then := oracle{}
	if known != nil {
		then[vm] = &oracleVM{known.Head, maps.Clone(known.Points)}
	}
	if pending.Op == "checkpoint" && found != nil { // what it would have been nobody was told
		for n, p := range found.Points {
			if _, old := known.Points[n]; !old {
				pending.N, pending.oraclePoint = n, p
			}
		}
	}
	then.apply(pending)
	if !same(then[vm], found) {
		t.Fatalf("%s is %s, acknowledged was %s; pending %+v", vm, text(found), text(known), pending)
	}
}

// copyDisk writes a disk out to a real folder.
func copyDisk(disk *castest.CrashFS, from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	files, err := disk.List(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(disk, filepath.Join(from, f.Name), filepath.Join(to, f.Name), f.Bytes); err != nil {
			return err
		}
	}
	for _, name := range disk.Folders(from) {
		if err := copyDisk(disk, filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile leaves holes where there are zeros.
func copyFile(disk *castest.CrashFS, from, to string, size int64) error {
	in, err := disk.Open(from)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	p, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := in.ReadAt(p, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(p[:n], zero[:n]) {
			if _, err := out.WriteAt(p[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return out.Truncate(size)
}

// playCut lets this binary be a process on a disk whose power is cut, or the one that looks at it afterwards.
func playCut() {
	for variable, play := range map[string]func(string) error{cutWorkVariable: cutWork, cutCheckVariable: cutCheck} {
		if dir := os.Getenv(variable); dir != "" {
			if err := play(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
}

func openCut(dir string) (*Store, *local.Store, error) {
	ctx := context.Background()
	chunks, err := local.Open(ctx, local.Config{Dir: filepath.Join(dir, "chunks"), TargetPackBytes: 300_000, ReserveBytes: -1})
	if err != nil {
		return nil, nil, err
	}
	// A cut before the database was first made durable leaves it new.
	s, err := Open(ctx, Config{Dir: filepath.Join(dir, "meta"), Chunks: chunks})
	return s, chunks, err
}

// cutWork works by chance for a while, and then closes in order.
func cutWork(dir string) error {
	var seed uint64
	fmt.Sscan(os.Getenv(cutSeedVariable), &seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s, chunks, err := openCut(dir)
	if err != nil {
		return err
	}
	say := json.NewEncoder(os.Stdout)
	for range 40 {
		l, do, err := cutStep(s, rng)
		if err != nil {
			return err
		}
		l.Did = "try"
		say.Encode(l)
		if l.oraclePoint, err = do(&l); err != nil {
			return fmt.Errorf("%s %s: %w", l.Op, l.VM, err)
		}
		l.Did = "ack"
		say.Encode(l)
	}
	return errors.Join(s.Close(), chunks.Close())
}

// cutStep chooses what to do next.
func cutStep(s *Store, rng *rand.Rand) (l said, do func(*said) (oraclePoint, error), err error) {
	ctx := context.Background()
	none := oraclePoint{}
	id := fmt.Sprintf("vm-%d", rng.IntN(3))
	v, err := s.VM(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return said{Op: "create", VM: id}, func(*said) (oraclePoint, error) { return none, s.CreateVM(ctx, VM{ID: id}, nil) }, nil
	}
	if err != nil {
		return l, nil, err
	}
	n := v.Head
	if h, err := s.History(ctx, id); err == nil && len(h) > 0 {
		n = h[rng.IntN(len(h))].Number
	}
	switch k := rng.IntN(20); {
	case k == 0:
		return said{Op: "delete", VM: id}, func(*said) (oraclePoint, error) { return none, s.DeleteVM(ctx, id) }, nil
	case k < 3 && n >= 0:
		return said{Op: "head", VM: id, N: n}, func(*said) (oraclePoint, error) { return none, s.MoveHead(ctx, id, n, "rewind") }, nil
	case k < 5 && n >= 0:
		return said{Op: "pin", VM: id, N: n}, func(*said) (oraclePoint, error) { return none, s.SetPinned(ctx, id, n, true) }, nil
	case k < 7:
		return said{Op: "gc"}, func(*said) (oraclePoint, error) { _, err := s.GC(ctx, GCOptions{Apply: true}); return none, err }, nil
	}
	ch := delta{}
	for range 1 + rng.IntN(30) {
		ch[rng.Uint64N(memBytes/cas.SlotBytes)] = page(rng.Uint64N(1 << 38))
	}
	return said{Op: "checkpoint", VM: id}, func(l *said) (oraclePoint, error) {
		c, err := tryCheckpoint(s, id, memBytes, ch)
		if err != nil {
			return none, err
		}
		l.N = c.Number
		mem, err := memSum(s, c.Snapshot)
		return oraclePoint{Snapshot: c.Snapshot, Mem: mem}, err
	}, nil
}

func memSum(s *Store, id SnapshotID) (cas.Hash, error) {
	ctx := context.Background()
	sn, err := s.Snapshot(ctx, id)
	if err != nil {
		return cas.Hash{}, err
	}
	im, err := sn.Image(ctx, "mem")
	if err != nil {
		return cas.Hash{}, err
	}
	p, err := im.ReadAll(ctx)
	return blake3.Sum256(p), err
}

// cutCheck opens what a cut has left, checks it, and says what is there.
func cutCheck(dir string) error {
	s, chunks, err := openCut(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := s.Check(ctx, CheckOptions{Read: 1})
	if err != nil && !errors.Is(err, ErrNothingChecked) {
		return err
	}
	if r.Worst == Damage {
		return fmt.Errorf("check: %+v", r.Findings)
	}
	found := oracle{}
	vms, err := s.VMs(ctx)
	if err != nil {
		return err
	}
	for _, v := range vms {
		found[v.ID] = &oracleVM{Head: v.Head, Points: map[int]oraclePoint{}}
		h, err := s.History(ctx, v.ID)
		if err != nil {
			return err
		}
		for _, c := range h {
			mem, err := memSum(s, c.Snapshot)
			if err != nil {
				return err
			}
			found[v.ID].Points[c.Number] = oraclePoint{c.Snapshot, mem, c.Pinned}
		}
	}
	if err := errors.Join(s.Close(), chunks.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
