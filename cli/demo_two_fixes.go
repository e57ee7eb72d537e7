package cli

import (
	"context"
	"fmt"
	"strings"

	"flash/vmm/host"
)

// The project: a program with a bug, and its tests. Plain sh and awk, which every guest has.
const (
	scriptProject = `mkdir -p /work/project && cd /work/project &&
cat > price.sh <<'END' &&
# price.sh QUANTITY CENTS PERCENT: what an order costs after the discount, to the nearest cent
awk -v q="$1" -v c="$2" -v p="$3" 'BEGIN { printf "%d\n", q * c - p / 100 }'
END
cat > run-tests.sh <<'END'
failed=0
check() {
	got=$(sh price.sh "$1" "$2" "$3")
	if [ "$got" = "$4" ]; then echo "ok    $1 x $2 less $3%: $got"; else echo "FAIL  $1 x $2 less $3%: $got, not $4"; failed=1; fi
}
check 1 1000  0 1000
check 2  250 10  450
check 1  101 15   86
exit $failed
END`

	// The session is a process that knows something nobody wrote down: it is in memory only.
	scriptSession = `cd /work && mkfifo ask answer || exit 1
sh -c 'known=$(cat /proc/sys/kernel/random/uuid); echo $$ > session.pid; while read q < ask; do echo "$known" > answer; done' </dev/null >/dev/null 2>&1 &
timeout 20 sh -c 'echo what > ask; cat answer'`
	scriptAsk = `cd /work && timeout 20 sh -c 'echo what > ask; cat answer'`

	scriptTests = `cd /work/project && sh run-tests.sh`

	// The mistake: a mistyped folder, and a ; where && was meant. It succeeds.
	scriptMistake = `cd /work/project; cd bulid 2>/dev/null; rm -rf ./*; kill "$(cat /work/session.pid)"`
	scriptNotes   = `echo 'build folder tidied' >> /work/notes; cat /work/notes`

	scriptSum = `cd /work/project && md5sum price.sh`

	fixTruncates = `cd /work/project && sed -i 's|q \* c - p / 100|q * c * (100 - p) / 100|' price.sh`
	fixRounds    = `cd /work/project && sed -i 's|q \* c - p / 100|q * c * (100 - p) / 100 + 0.5|' price.sh`
	scriptRandom = `cat /proc/sys/kernel/random/uuid`
)

// twoFixes is how far the story is.
type twoFixes struct {
	*stage
	vm      string // the agent's
	known   string // what the session knows
	tests   string // what the tests said before the mistake
	sum     string // of price.sh before the mistake
	mistake int    // the checkpoint taken just before it
	forks   []host.VM
}

// playTwoFixes plays: an agent works, makes a mistake that looks like success, notices it three commands later, goes
// back to just before it, and tries two fixes at once from there.
func playTwoFixes(ctx context.Context, api host.API, s *stage) error {
	t := &twoFixes{stage: s, vm: s.id}
	for _, act := range []func(context.Context) error{t.work, t.blunder, t.undo, t.tryTwo} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work sets the scene: a project whose tests fail, and a session that lives in memory.
func (t *twoFixes) work(ctx context.Context) error {
	if err := t.needBundle(ctx); err != nil {
		return err
	}
	if err := t.step("start a VM that saves itself before every command", func() (string, error) {
		t.vms = append(t.vms, t.vm)
		vm, err := t.api.Create(ctx, host.CreateRequest{ID: t.vm, Bundle: demoBundle, Checkpoints: true})
		if err != nil {
			return "", err
		}
		return vm.ID, expect(vm.State == "running", "%s runs: it is %s", vm.ID, vm.State)
	}); err != nil {
		return err
	}
	if _, err := t.command(ctx, "the agent writes a program and its tests", scriptProject, 0); err != nil {
		return err
	}
	r, err := t.command(ctx, "it starts a session that keeps what it knows in memory", scriptSession, 0)
	if err != nil {
		return err
	}
	t.known = r.out
	if r, err = t.command(ctx, "the tests find a bug", scriptTests, 1); err != nil {
		return err
	}
	t.tests = r.out
	r, err = t.command(ctx, "it looks at the program", scriptSum, 0)
	t.sum = r.out
	return err
}

// blunder is the mistake, and how late it is noticed.
func (t *twoFixes) blunder(ctx context.Context) error {
	r, err := t.command(ctx, "the mistake: it tidies up a mistyped folder", scriptMistake, 0)
	if err != nil {
		return err
	}
	t.mistake = r.Checkpoint.Number
	if _, err := t.command(ctx, "it goes on, sure of itself", scriptNotes, 0); err != nil {
		return err
	}
	return t.step("noticed: the project is gone, and so is the session", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptTests)
		if err != nil {
			return "", err
		}
		return r.out, expect(r.Code != 0 && r.out != t.tests, "the tests can't run any more: exit %d, %q", r.Code, r.out)
	})
}

// undo finds the moment in the history and goes back to it: files, processes and memory.
func (t *twoFixes) undo(ctx context.Context) error {
	var before []host.Checkpoint
	if err := t.step("the history names the command", func() (string, error) {
		var err error
		if before, err = t.api.History(ctx, t.vm); err != nil {
			return "", err
		}
		for _, cp := range before {
			if cp.Number == t.mistake {
				return fmt.Sprintf("%d  %s", cp.Number, printable(cp.Label, maxLabelWidth)), expect(strings.Contains(cp.Label, "bulid"), "checkpoint %d is labelled with the mistake: %q", cp.Number, cp.Label)
			}
		}
		return "", expect(false, "the history has checkpoint %d", t.mistake)
	}); err != nil {
		return err
	}
	if err := t.step(fmt.Sprintf("rewind to checkpoint %d", t.mistake), func() (string, error) {
		res, err := t.api.Rewind(ctx, host.RewindRequest{ID: t.vm, Checkpoint: t.mistake})
		if err != nil {
			return "", err
		}
		after, err := t.api.History(ctx, t.vm)
		if err != nil {
			return "", err
		}
		found := "nothing was lost"
		if res.Saved != nil {
			found = fmt.Sprintf("what was left is checkpoint %d", res.Saved.Number)
		}
		return found, expect(len(after) >= len(before), "a rewind removes nothing: %d checkpoints were %d", len(after), len(before))
	}); err != nil {
		return err
	}
	if err := t.step("the files are back: the tests say what they said", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptTests)
		if err != nil {
			return "", err
		}
		return r.out, expect(r.Code == 1 && r.out == t.tests, "the tests fail as before: exit %d, %q", r.Code, r.out)
	}); err != nil {
		return err
	}
	return t.step("the memory is back: the session still knows", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptAsk)
		if err != nil {
			return "", err
		}
		return r.out, expect(r.Code == 0 && r.out == t.known, "it knows %q: exit %d, %q", t.known, r.Code, r.out)
	})
}

// tryTwo forks the moment before the mistake and tries a fix in each.
func (t *twoFixes) tryTwo(ctx context.Context) error {
	if err := t.step("fork that moment twice", func() (string, error) {
		ids := []string{t.id + "-a", t.id + "-b"}
		t.vms = append(t.vms, ids...)
		var err error
		if t.forks, err = t.api.Fork(ctx, host.ForkRequest{From: t.vm, Checkpoint: &t.mistake, Count: len(ids), IDs: ids}); err != nil {
			return "", err
		}
		return strings.Join(ids, " "), expect(len(t.forks) == len(ids), "%d forks were made: %d were", len(ids), len(t.forks))
	}); err != nil {
		return err
	}
	if err := t.step("they are twins no more: each has its own randomness", func() (string, error) {
		a, err := t.sh(ctx, t.forks[0].ID, scriptRandom)
		if err != nil {
			return "", err
		}
		b, err := t.sh(ctx, t.forks[1].ID, scriptRandom)
		if err != nil {
			return "", err
		}
		return a.out + "\n" + b.out, expect(a.out != "" && b.out != "" && a.out != b.out, "they differ: %q and %q", a.out, b.out)
	}); err != nil {
		return err
	}
	if err := t.try(ctx, t.forks[0].ID, "one cuts the cents off: the tests still fail", fixTruncates, 1); err != nil {
		return err
	}
	if err := t.try(ctx, t.forks[1].ID, "the other rounds them: every test passes", fixRounds, 0); err != nil {
		return err
	}
	return t.step("the agent's own VM never noticed", func() (string, error) {
		r, err := t.sh(ctx, t.vm, scriptSum)
		if err != nil {
			return "", err
		}
		return r.out, expect(r.out == t.sum, "its program is as it was, %q: %q", t.sum, r.out)
	})
}

// try applies a fix in a fork and runs the tests there.
func (t *twoFixes) try(ctx context.Context, vm, title, fix string, wantCode int) error {
	return t.step(title, func() (string, error) {
		if r, err := t.sh(ctx, vm, fix); err != nil || r.Code != 0 {
			return r.out, errorOr(err, "the fix can be applied: exit %d, %q", r.Code, r.out)
		}
		r, err := t.sh(ctx, vm, scriptTests)
		if err != nil {
			return "", err
		}
		return r.out, expect(r.Code == wantCode && (strings.Contains(r.out, "FAIL") == (wantCode != 0)), "the tests exit with %d: %d, %q", wantCode, r.Code, r.out)
	})
}

// command is a step that is one command of the agent's, which must have been saved first and end with code.
func (t *twoFixes) command(ctx context.Context, title, script string, code int) (ran, error) {
	var r ran
	err := t.step(title, func() (string, error) {
		var err error
		if r, err = t.sh(ctx, t.vm, script); err != nil {
			return "", err
		}
		if r.Code != code {
			return "", expect(false, "it exits with %d: %d, %q", code, r.Code, r.out)
		}
		return r.out, expect(r.Checkpoint != nil, "the VM was saved before the command")
	})
	return r, err
}

func errorOr(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return expect(false, format, args...)
}
