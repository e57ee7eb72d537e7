package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"flash/vmm/host"
)

func play(t *testing.T, h *fakeHost) (*stage, error) {
	t.Helper()
	s := &stage{api: h, out: io.Discard, id: "demo-21-test"}
	err := playTwoFixes(t.Context(), h, s)
	if cleanErr := s.clean(t.Context()); cleanErr != nil {
		t.Error(cleanErr)
	}
	return s, err
}

func TestDemoHoldsOnAHostThatDoes(t *testing.T) {
	h := newFakeHost()
	s, err := play(t, h)
	if err != nil {
		t.Fatal(err)
	}
	if vms, _ := h.List(t.Context()); len(vms) > 0 {
		t.Errorf("VMs are left: %v", vms)
	}
	if len(s.took) < 15 {
		t.Errorf("only %d steps were taken", len(s.took))
	}
}

// What a demo is for: it must not applaud a host that breaks a promise.
func TestDemoFailsOnAHostThatBreaksItsPromises(t *testing.T) {
	for what, tc := range map[string]struct {
		breaks func(*fakeHost)
		step   string
	}{
		"rewind forgets files":    {func(h *fakeHost) { h.rewindForgetsFiles = true }, "the files are back"},
		"forks share randomness":  {func(h *fakeHost) { h.forksShareRandomness = true }, "its own randomness"},
		"a fork is the live VM":   {func(h *fakeHost) { h.forkIsTheParent = true }, "never noticed"},
		"a rewind loses memory":   {func(h *fakeHost) { h.rewindForgetsMemory = true }, "the memory is back"},
		"commands aren't saved":   {func(h *fakeHost) { h.neverCheckpoints = true }, "writes a program"},
		"a rewind cuts the trunk": {func(h *fakeHost) { h.rewindRemoves = true }, "rewind to checkpoint"},
	} {
		t.Run(what, func(t *testing.T) {
			h := newFakeHost()
			tc.breaks(h)
			_, err := play(t, h)
			if err == nil || !strings.Contains(err.Error(), tc.step) {
				t.Errorf("got %v, want the step %q to fail", err, tc.step)
			}
		})
	}
}

func TestDemoCleansUpWhenItIsInterrupted(t *testing.T) {
	h := newFakeHost()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stage{api: &interrupted{h, cancel}, out: io.Discard, id: "demo-21-test"}
	err := playTwoFixes(ctx, s.api, s)
	if err == nil {
		t.Error("it played on")
	}
	if err := s.clean(ctx); err != nil {
		t.Error(err)
	}
	if vms, _ := h.List(t.Context()); len(vms) > 0 {
		t.Errorf("VMs are left: %v", vms)
	}
}

// interrupted is a host during whose first rewind the user presses ^C.
type interrupted struct {
	*fakeHost
	cancel context.CancelFunc
}

func (i *interrupted) Rewind(ctx context.Context, r host.RewindRequest) (host.RewindResult, error) {
	i.cancel()
	return host.RewindResult{}, ctx.Err()
}
