package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_ASupervisorThatHangsEnds: a step that waits for ever, as at a file of its user's, kept it and its machine when
// the caller had gone.
func TestI13_ASupervisorThatHangsEnds(t *testing.T) {
	t.Parallel()
	s := &supervisor{plan: newPlan(t, t.TempDir(), ""), out: state.NewStatusLines(io.Discard)}
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	release, ended, exited := make(chan struct{}), make(chan error, 1), make(chan struct{})
	s.boundEnd(time.Millisecond, func() { close(exited) })
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
	if s.removed() {
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
