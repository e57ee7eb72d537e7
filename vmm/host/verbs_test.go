package host

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"flash/vmm/guest"
)

func TestEveryCommandIsAnUndoPoint(t *testing.T) {
	w := newWorld(t)
	w.run("a", eachCommand)
	w.write("a", "one")
	w.write("a", "two")
	out, r, err := w.try("a", "cat /root/text; exit 3")
	if err != nil || out != "two" || r.Code != 3 || r.Checkpoint == nil || r.Checkpoint.Number != 3 || *r.Checkpoint.ExitCode != 3 {
		t.Fatalf("%q %+v %v", out, r, err)
	}
	w.pastIs("a", "1<- sh -c 'echo one > /root/text', 2<-1 sh -c 'echo two > /root/text', 3<-2 sh -c 'cat /root/text; exit 3'*")
	all, err := w.History(t.Context(), "a")
	w.must(err)
	if *all[0].ExitCode != 0 || *all[2].ExitCode != 3 || all[0].NewBytes == 0 {
		t.Errorf("%+v", all)
	}
	no := false
	if r, err := w.Exec(t.Context(), ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}, Checkpoint: &no}, guest.Streams{}); err != nil || r.Checkpoint != nil {
		t.Errorf("told not to: %+v, %v", r, err)
	}
	// Checkpoint N is the state just before command N.
	w.rewindTo("a", 2)
	if got := w.past("a"); !strings.HasSuffix(got, ", 4<-3 before rewind to 2") {
		t.Error(got)
	}
	all, _ = w.History(t.Context(), "a")
	if !all[1].Head || *w.get("a").Head != 2 {
		t.Errorf("%+v", all)
	}
	if r, err := w.Exec(t.Context(), ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"cat", "/root/text"}}, Checkpoint: &no}, guest.Streams{Stdout: writerFunc(func(p []byte) {
		if string(p) != "one\n" {
			t.Errorf("%q", p)
		}
	})}); err != nil || r.Code != 0 {
		t.Error(r, err)
	}
	w.sound("a")
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestNumbersAreNeverUsedAgain(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.checkpointNow("a", "one")
	w.rewindTo("a", 1)
	if c := w.checkpointNow("a", "three"); c.Number != 3 || *c.Parent != 1 || !c.Head || c.Timing == nil {
		t.Errorf("%+v", c)
	}
	w.stop("a")
	w.reopen()
	w.start("a")
	w.checkpointNow("a", "five")
	w.pastIs("a", "1<- one, 2<-1 before rewind to 1, 3<-1 three, 4<-3 before stop, 5<-4 five*")
	w.sound("a")
}

func TestPinsAreKeptAndTakenBack(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	c, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a", Label: strings.Repeat("ä", 300), Pin: true})
	if err != nil || !c.Pinned || len(c.Label) > maxLabelBytes || !strings.HasSuffix(c.Label, "ä…") {
		t.Fatalf("%+v, %v", c, err)
	}
	w.stop("a")
	w.fails(w.Remove(t.Context(), RemoveRequest{ID: "a"}), CodeVMPinned)
	w.reopen()
	c, err = w.Pin(t.Context(), "a", 1, false)
	if err != nil || c.Pinned || c.Head {
		t.Fatalf("%+v, %v", c, err)
	}
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a"}))
	_, err = w.Get(t.Context(), "a")
	w.fails(err, CodeVMNotFound)
	if all, err := w.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	w.run("a") // the name is free
	w.pastIs("a", "")
}

func TestDiffCountsWhatChanged(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.checkpointNow("a", "one")
	w.sh("a", "fill 100 7")
	w.write("a", "text")
	w.checkpointNow("a", "two")
	d, err := w.Diff(t.Context(), DiffRequest{ID: "a", From: 1})
	if err != nil || d.To != 2 || d.MemoryPages < 100 || d.MemoryPages > 120 || d.DiskBlocks == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	same := 1
	if d, err := w.Diff(t.Context(), DiffRequest{ID: "a", From: 1, To: &same}); err != nil || d.MemoryPages != 0 || d.DiskBlocks != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	w.facts.Version = "2" // comparing needs no engine
	w.facts.Engine, w.facts.MachineType, w.facts.CPU, w.facts.Accel, w.facts.Layout = "fake", "fake-1", "fake", "none", "1"
	w.reopen()
	if _, err := w.Diff(t.Context(), DiffRequest{ID: "a", From: 1}); err != nil {
		t.Error(err)
	}
}

func TestAnUnchangedGuestCostsLittle(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.sh("a", "fill 400 3")
	w.checkpointNow("a", "one")
	if c := w.checkpointNow("a", "two"); c.NewBytes > 64<<10 || c.Timing.Pages > 8 || c.Timing.Blocks != 0 {
		t.Errorf("%+v %+v", c, c.Timing)
	}
}

func TestFilesGoInAndOut(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	var in bytes.Buffer
	tw := tar.NewWriter(&in)
	w.must(tw.WriteHeader(&tar.Header{Name: "text", Size: 6, Mode: 0o644, Typeflag: tar.TypeReg}))
	fmt.Fprint(tw, "inside")
	w.must(tw.Close())
	w.must(w.CopyIn(t.Context(), "a", "/root", &in))
	w.holds("a", "inside")
	var out bytes.Buffer
	w.must(w.CopyOut(t.Context(), "a", "/root/text", &out))
	tr := tar.NewReader(&out)
	h, err := tr.Next()
	w.must(err)
	if text, err := io.ReadAll(tr); h.Name != "text" || string(text) != "inside" || err != nil {
		t.Errorf("%s: %q, %v", h.Name, text, err)
	}
}

func TestACommandCanBeAttachedTo(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	_, r, err := w.try("a", "echo done; exit 4")
	w.must(err)
	known, err := w.Execs(t.Context(), "a")
	if err != nil || len(known) != 1 || known[0].ID != r.ExecID || known[0].Running {
		t.Fatalf("%+v, %v", known, err)
	}
	if again, err := w.AttachExec(t.Context(), "a", "", guest.Streams{}); err != nil || again.Code != 4 || again.ExecID != r.ExecID {
		t.Errorf("%+v, %v", again, err)
	}
	var console bytes.Buffer
	w.must(w.Logs(t.Context(), "a", false, &console))
	if !strings.Contains(console.String(), "booted") {
		t.Errorf("%q", console.String())
	}
}

func TestTheLedgerTellsAVMsLife(t *testing.T) {
	w := newWorld(t)
	w.run("a", eachCommand)
	w.write("a", "one")
	w.rewindTo("a", 1)
	w.stop("a")
	w.start("a")
	w.engine.Machines()[0].Crash()
	w.start("a")
	if _, err := w.Fork(t.Context(), ForkRequest{From: "a"}); err != nil {
		t.Fatal(err)
	}
	told := func(id string) string {
		all, err := w.Ledger(t.Context(), id)
		w.must(err)
		var kinds []string
		for _, e := range all {
			kinds = append(kinds, e.Kind)
		}
		return strings.Join(kinds, " ")
	}
	if got, want := told("a"), "created checkpoint exec checkpoint rewind checkpoint stop start resume checkpoint fork"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := told("a-fork-1"); got != "fork_point" {
		t.Error(got)
	}
}
