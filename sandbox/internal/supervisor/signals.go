package supervisor

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// handleSignals makes SIGTERM and SIGHUP an orderly end. SIGINT is for the guest and comes as a request.
func (s *supervisor) handleSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGPIPE)
	s.signals = signals{ch: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(s.signals.ch, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(s.signals.done)
		for range s.signals.ch {
			s.signals.came = true
			s.cancel(errCallerGone)
		}
	}()
}

// signals are those that end the sandbox.
type signals struct {
	ch   chan os.Signal
	came bool // valid after done
	done chan struct{}
}

// leave reports whether one has come. From then on they end the process at once.
func (s *signals) leave() bool {
	signal.Stop(s.ch)
	close(s.ch)
	<-s.done
	return s.came
}

// handleCaptureSignals lets signals switch the capture. Errors are reported when the sandbox ends: its work is not
// lost for it, and a capture that is missing does not go unnoticed.
func (s *supervisor) handleCaptureSignals() {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, state.SignalCaptureOn, state.SignalCaptureOff)
	go func() {
		for n := range ch {
			_ = s.records.SwitchCapture(n == state.SignalCaptureOn) // Records.Close tells of it
		}
	}()
}
