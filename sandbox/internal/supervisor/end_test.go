package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_ASupervisorThatHangsEnds: a step that waits for ever, as at a file of its user's, kept it and its machine when
// the caller had gone.
func TestI13_ASupervisorThatHangsEnds(t *testing.T) {
	t.Parallel()
	s := newSupervisor(newPlan(t, t.TempDir(), ""), state.NewStatusLines(io.Discard), nil)
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	release, ended, exited := make(chan struct{}), make(chan error, 1), make(chan struct{})
	boundEnd(s.ctx, time.Millisecond, func() { close(exited) })
	at := make(chan struct{})
	go func() {
		ended <- s.live(func() error { close(at); <-release; return nil }, func() error { return nil })
	}()
	<-at
	select {
	case <-exited:
		t.Fatal("it was made to exit while its caller was there")
	default:
	}
	s.cancel(errCallerGone)
	<-exited
	select {
	case err := <-ended:
		t.Errorf("it ended by itself (%v): the step does not hang", err)
	default:
	}
	close(release)
	<-ended
}

// TestI13_ASandboxEndsWithItsDirectory: when somebody removed a home, the machines in it ran on, and no command could end
// them. At their end they removed what was there by their names.
func TestI13_ASandboxEndsWithItsDirectory(t *testing.T) {
	t.Parallel()
	h := t.TempDir()
	p := newPlan(t, h, "web")
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	moved := p.Dir + ".moved"
	must(t, os.Rename(p.Dir, moved))
	if s.named.removed() {
		t.Error("one that was moved counts as removed")
	}
	must(t, os.Rename(moved, p.Dir))
	must(t, os.RemoveAll(p.Dir))
	newNamed(t, h, "web")
	files := []string{state.InfoFile, state.ControlSock}
	for _, file := range files {
		must(t, os.WriteFile(filepath.Join(p.Dir, file), []byte("of another"), 0o600))
	}
	if err := <-s.ended; !errors.Is(err, errRemoved) {
		t.Errorf("it ended with %v", err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(filepath.Join(p.Dir, file)); err != nil || string(b) != "of another" {
			t.Errorf("%s of the sandbox that has the name now: %q, %v", file, b, err)
		}
	}
	if there(t, filepath.Join(p.Dir, state.EndFile)) {
		t.Error("it has an end that is another's")
	}
}

// TestI13_TemporarySandboxesEndWithMain and are removed; the twin stays. Another job's end is none of the sandbox's.
func TestI13_TemporarySandboxesEndWithMain(t *testing.T) {
	t.Parallel()
	for _, temporary := range []bool{true, false} {
		h := t.TempDir()
		p := newPlan(t, h, "web")
		p.AutoRemove = temporary
		s, info := superviseFake(t, &guestVM{}, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		s.jobs.Ended("other")
		if s.ctx.Err() != nil {
			t.Error("another job's end is the sandbox's")
		}
		s.jobs.Ended(state.MainJob)
		if ended := s.ctx.Err() != nil; ended != temporary {
			t.Errorf("temporary %v: over %v", temporary, ended)
		}
		s.cancel(errCallerGone)
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		if left := there(t, p.Dir); left == temporary {
			t.Errorf("temporary %v: its directory is there: %v", temporary, left)
		}
		if all, err := os.ReadDir(filepath.Dir(p.Dir)); err != nil || temporary && len(all) > 0 {
			t.Errorf("left: %v, %v", all, err)
		}
	}
}

// TestI14_TemporarySandboxesSpareForeignFiles: the sandbox stays, and says why.
func TestI14_TemporarySandboxesSpareForeignFiles(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.AutoRemove = true
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	foreign := filepath.Join(p.Dir, "thesis.txt")
	must(t, os.WriteFile(foreign, nil, 0o600))
	s.cancel(errCallerGone)
	if err := <-s.ended; !errors.Is(err, owned.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
	if !there(t, foreign) || !there(t, filepath.Join(p.Dir, state.EndFile)) || there(t, filepath.Join(p.Dir, state.InfoFile)) {
		t.Error("the file is gone, or there is no end")
	}
}

// TestI13_AttachedSandboxesEndWithTheirCaller: one with a name lives on else.
func TestI13_AttachedSandboxesEndWithTheirCaller(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{true, false} {
		p := newPlan(t, t.TempDir(), "web")
		p.AutoRemove, p.Attached = true, attached
		s, info := superviseFake(t, &guestVM{}, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		ours, theirs, err := state.SocketPair()
		must(t, err)
		watched := make(chan struct{})
		go func() { s.supervisor.caller.watch(theirs); close(watched) }()
		must(t, ours.Close())
		<-watched
		if ended := s.ctx.Err() != nil; ended != attached {
			t.Errorf("attached %v: over %v", attached, ended)
		}
		s.cancel(errCallerGone)
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		if there(t, p.Dir) {
			t.Errorf("attached %v: its directory is there", attached)
		}
		must(t, theirs.Close())
	}
}
