package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// lastWordWait bounds the wait for the supervisor's reason, if the agent's session noticed the end first.
const lastWordWait = 5 * time.Second

// ID is the sandbox's id, unique on this machine; its name if it has one.
func (s *Sandbox) ID() string { return s.info.ID }

// Name is the sandbox's name; "" for one without.
func (s *Sandbox) Name() string { return s.name }

// Info is what the sandbox reported when it was ready.
func (s *Sandbox) Info() Info { return s.info }

// Image is what its root was made from.
func (s *Sandbox) Image() *image.Image { return s.image }

// MinHostRoom is how many bytes must be free on this machine for a sandbox with a disk to start.
const MinHostRoom = state.MinFree

// HostRoom is how many bytes are free on this machine where the sandbox's disk is.
func (s *Sandbox) HostRoom() (int64, error) { return state.Free(s.run.dir) }

// Exec runs one process and returns how it ended. An error means that it could not be run to its end,
// and has a Kind; a program that is missing or fails is an ExitStatus.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExitStatus, error) {
	if err := noPlaceholder(opts.Env, s.info.Placeholders); err != nil {
		return ExitStatus{}, Fail(err)
	}
	st, err := s.client.Exec(ctx, opts)
	if err == nil || ctx.Err() != nil {
		return st, err
	}
	return st, sessionError(s, err)
}

// sessionError is why a call of s failed.
func sessionError(s *Sandbox, err error) error {
	if s.client.Err() == nil { // the session continues: this call was refused, or its output has no reader
		return Fail(err)
	}
	// The session ended under the call. The supervisor knows why: a panic, no memory, a violation.
	select {
	case <-s.over:
		return Fail(s.failure)
	case <-s.afterWait(lastWordWait):
		return Fail(err)
	}
}

// Stats asks the guest what it uses. A hostile guest may lie.
func (s *Sandbox) Stats(ctx context.Context) (agentclient.Stats, error) {
	st, err := s.client.Stats(ctx)
	return st, Fail(err)
}

func (s *Sandbox) afterWait(d time.Duration) <-chan time.Time {
	if s.after != nil {
		return s.after(d)
	}
	return time.After(d)
}

// Done is closed when the sandbox is over, by Close or by itself; Err then says why.
func (s *Sandbox) Done() <-chan struct{} { return s.over }

// Err is why the sandbox ended by itself. Valid after Done.
func (s *Sandbox) Err() error { return Fail(s.failure) }

// Denied summarises the refusals of a sandbox that was started here. It waits for the sandbox's end, so call it after Close
// or Stop; it is empty for a sandbox with a name that runs on, and for one of Connect.
func (s *Sandbox) Denied() audit.DenialSummary {
	select {
	case <-s.over:
		return s.denied
	case <-s.afterWait(lastWordWait):
		return audit.DenialSummary{}
	}
}

// Close ends the sandbox and waits until nothing is left of it: no process, and no file but those of Config.Keep. A sandbox
// with a name runs on: Close ends only this session, Stop ends the sandbox. Further calls return nil.
func (s *Sandbox) Close() error {
	var err error
	s.once.Do(func() {
		if s.name != "" && !s.review {
			s.leave()
		} else {
			err = s.close()
		}
	})
	return err
}

// Stop ends the sandbox. One with a name keeps its disk for the next start.
func (s *Sandbox) Stop(ctx context.Context) error {
	if s.name == "" {
		return s.Close()
	}
	return errors.Join(s.home.Stop(ctx, s.name), s.Close())
}

// Discard is Stop for a sandbox that is of no use since a later step failed: it also removes a named sandbox that Start
// made, with its disk. A newer sandbox of the same name is left alone.
func (s *Sandbox) Discard(ctx context.Context) error {
	if s.made == nil {
		return s.Stop(ctx)
	}
	var stopped error
	if conn, err := state.DialControl(s.run.dir); err == nil {
		// While the file exists, no other sandbox's supervisor can answer.
		if isAt(s.made, filepath.Join(s.run.dir, state.LockFile)) {
			stopped = state.EndPeer(ctx, conn, state.StopWait)
		} else {
			_ = conn.Close()
		}
	}
	return Fail(errors.Join(stopped, removeMade(ctx, s.home, s.name, s.made), s.Close()))
}

// leave ends the session with a sandbox that has a name.
func (s *Sandbox) leave() {
	_ = s.client.Close() // its only error is that the stream is closed already
	if s.made != nil {
		_ = s.made.Close() // nothing was written to it
	}
	if s.cmd != nil {
		go func() { _ = s.cmd.Wait() }() // only so that it leaves no zombie while this process lives
	}
}

// abandon ends a sandbox that did not become ready. Until it is ready, its supervisor ends with its caller.
func (s *Sandbox) abandon() (err error) {
	if s.name != "" { // which has just become ready and would run on
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // its only error is that it is gone already
	}
	s.once.Do(func() { err = s.close() })
	return err
}

// dropRun removes the files of a run that never began, or is over.
func (s *Sandbox) dropRun() error {
	if s.name == "" {
		return s.run.remove()
	}
	run, err := lockNamed(s.home, s.name)
	if errors.Is(err, ErrRunning) || errors.Is(err, ErrNoSandbox) {
		return nil // the directory is another command's now, which has cleared it
	}
	if err != nil {
		return err
	}
	return errors.Join(clearRun(s.home, run.dir), run.lock.Close())
}

func (s *Sandbox) close() error {
	ended := false
	select {
	case <-s.over:
		ended = true
	default:
	}
	_ = s.client.Close() // closes the control socket: that ends the supervisor
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = s.cmd.Wait() // its exit code says nothing that its status lines did not
	}()
	var err error
	select {
	case <-gone:
	case <-s.afterWait(state.StopTimeout):
		err = fmt.Errorf("%w: it did not stop within %s and was killed", ErrSupervisor, state.StopTimeout)
		_ = s.cmd.Process.Kill()
		<-gone
	}
	if s.watched && !ended {
		select {
		case <-s.over: // its last word: a record that could not be written, say
			var f *Failure
			if errors.As(s.failure, &f) {
				err = errors.Join(err, f)
			}
		case <-s.afterWait(lastWordWait):
		}
	}
	_ = s.pipe.Close()
	if s.keep {
		return err
	}
	return errors.Join(err, s.dropRun())
}

// SwitchCapture turns the capture of Config.Pcap on or off. Close returns its errors.
func (s *Sandbox) SwitchCapture(on bool) error {
	n := SignalCaptureOff
	switch {
	case !s.pcap:
		return ErrNoCapture
	case on:
		n = SignalCaptureOn
	}
	if s.name == "" {
		return s.cmd.Process.Signal(n)
	}
	conn, err := state.DialControl(s.run.dir)
	if err != nil {
		return notRunning(s.name)
	}
	defer func() { _ = conn.Close() }()
	return state.SignalPeer(conn, n)
}

// KeptDir is where Config.Keep leaves the run directory after Close.
func (s *Sandbox) KeptDir() string { return keptDir(s.home, s.run.id) }

// Sandbox is a started sandbox. Its methods may be called from several goroutines.
type Sandbox struct {
	name   string // "" for one that leaves nothing
	info   Info
	image  *image.Image
	home   *Home
	run    *runDir
	keep   bool
	review bool     // of Home.Review: it ends with Close
	made   *os.File // the lock file of one with a name that Start made: no other has it while it is open
	cmd    *exec.Cmd
	client *agentclient.Client
	lines  *json.Decoder
	pipe   *os.File

	pcap    bool          // there is a capture to switch
	notice  func(string)  // of a policy that was taken or refused
	watched bool          // over will be closed
	over    chan struct{} // closed when the supervisor has gone
	failure error         // why, valid after over
	denied  audit.DenialSummary
	once    sync.Once
	after   func(time.Duration) <-chan time.Time // time.After, but in tests

	// confined says what confines the guest, which its containers' mounts may not give it; nil for a sandbox that another
	// process started.
	confined *Config
}

// ExecOptions says what to run in a sandbox, ExitStatus how it ended.
type (
	ExecOptions = agentclient.ExecOptions
	ExitStatus  = agentclient.ExitStatus
)
