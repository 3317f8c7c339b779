package sandbox

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// ofCommand is a sandbox without a name, whose supervisor is a command, and the supervisor's end of the control socket.
func ofCommand(t *testing.T, h *Home, argv ...string) (*Sandbox, *os.File) {
	t.Helper()
	run, err := newRun(h)
	must(t, err)
	ours, theirs, err := state.SocketPair()
	must(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	s := &Sandbox{home: h, run: run, over: make(chan struct{}), cmd: exec.Command(argv[0], argv[1:]...)}
	s.client, err = agentclient.Attach(ours)
	must(t, err)
	s.pipe, err = os.Open(os.DevNull)
	must(t, err)
	must(t, s.cmd.Start())
	must(t, run.lock.Close()) // which is the supervisor's
	return s, theirs
}

// TestI13_HangingSupervisorsAreKilled: Close leaves nothing of a sandbox whose supervisor doesn't end, and says so.
func TestI13_HangingSupervisorsAreKilled(t *testing.T) {
	t.Parallel()
	s, _ := ofCommand(t, newHome(t), "sleep", "600")
	waits := 0
	s.watched, s.after = true, func(time.Duration) <-chan time.Time {
		waits++
		now := make(chan time.Time, 1)
		now <- time.Time{}
		return now
	}
	if err := s.Close(); !errors.Is(err, ErrSupervisor) || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("%v; want ErrSupervisor, killed", err)
	}
	if s.cmd.ProcessState == nil || s.cmd.ProcessState.Success() {
		t.Errorf("the supervisor is %v", s.cmd.ProcessState)
	}
	if waits != 2 {
		t.Errorf("%d waits; want one for its end and one for its last word", waits)
	}
	if there(t, s.run.dir) {
		t.Error("its directory is there")
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestI12_LastWordsAreReported: Close has the error of a supervisor that ends with one because of it. The twins are one that
// has none, and one that had ended before, of which Err tells. What is to be kept stays.
func TestI12_LastWordsAreReported(t *testing.T) {
	t.Parallel()
	word := state.FailAs(KindSandbox, errors.New("a record could not be written"))
	for name, c := range map[string]struct {
		failure      error
		before, keep bool
		want         error
	}{
		"a failure":             {word, false, false, word},
		"a failure, kept":       {word, false, true, word},
		"no failure":            {ErrSupervisor, false, false, nil},
		"one that ended before": {word, true, false, nil},
	} {
		s, control := ofCommand(t, newHome(t), "true")
		s.watched, s.keep, s.failure = true, c.keep, c.failure
		s.after = func(time.Duration) <-chan time.Time { return nil }
		if c.before {
			close(s.over)
		} else {
			go func() {
				_, _ = io.Copy(io.Discard, control) // until Close ends the session
				close(s.over)
			}()
		}
		if err := s.Close(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
		if there(t, s.run.dir) != c.keep {
			t.Errorf("%s: its directory is there: %t", name, !c.keep)
		}
	}
}

// TestCapturesAreSwitchedBySignals, if there is one.
func TestCapturesAreSwitchedBySignals(t *testing.T) {
	t.Parallel()
	for on, want := range map[bool]syscall.Signal{true: SignalCaptureOn, false: SignalCaptureOff} {
		s, _ := ofCommand(t, newHome(t), "sleep", "600")
		s.after = func(time.Duration) <-chan time.Time { return nil }
		if err := s.SwitchCapture(on); !errors.Is(err, ErrNoCapture) {
			t.Errorf("without a capture: %v", err)
		}
		s.pcap = true
		must(t, s.SwitchCapture(on))
		must(t, s.Close())
		if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != want {
			t.Errorf("on %t: it ended by %v, want %v", on, s.cmd.ProcessState, want)
		}
	}
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	stopped := &Sandbox{name: "web", home: h, run: &runDir{id: "web", dir: namedPath(h, "web")}, pcap: true}
	if err := stopped.SwitchCapture(true); !errors.Is(err, ErrNotRunning) {
		t.Errorf("one that is stopped: %v", err)
	}
}
