package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Connect opens a session with the running sandbox of that name. Its Close ends the session and not the sandbox.
func (h *Home) Connect(ctx context.Context, name string) (*Sandbox, error) {
	s, err := connectNamed(ctx, h, name)
	return s, Fail(err)
}

func connectNamed(ctx context.Context, h *Home, name string) (*Sandbox, error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, err
	}
	dir := namedPath(h, name)
	conn, err := state.DialControl(dir)
	if err != nil {
		return nil, notRunning(name)
	}
	st, err := loadStored(h, name)
	if err != nil { // of the sandbox behind conn, or of a later one
		return nil, errors.Join(err, conn.Close())
	}
	s := &Sandbox{
		name: name, home: h, run: &runDir{id: name, dir: dir}, over: make(chan struct{}), pcap: st.Pcap != "",
		image: &image.Image{Ref: st.Image, Digest: st.ImageDigest, Config: st.ImageConfig},
	}
	if s.client, err = agentclient.Attach(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// A sandbox that is starting answers when it is ready.
	wait := cmp.Or(h.answer, connectWait)
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.Info != nil {
		wait = min(wait, answerWait)
	}
	asked, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := s.client.Stats(asked); err != nil && !errors.Is(err, ErrPaused) {
		err = errors.Join(err, s.client.Close())
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if asked.Err() != nil {
			return nil, fmt.Errorf("%w: the supervisor of %s did not answer within %s; a process that was stopped goes on after kill -CONT, and `msb stop %s` ends it", agentclient.ErrTimeout, name, wait, name)
		}
		return nil, &noAnswerError{name, err}
	}
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.Info != nil {
		s.info = *r.Info
	}
	go s.watchSession()
	return s, nil
}

// noAnswerError is ErrNotRunning, unless the sandbox turns out to run (changeStopped).
type noAnswerError struct {
	name   string
	reason error
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("%v: %s ended before it answered (%v); `msb start %s` starts it", ErrNotRunning, e.name, e.reason, e.name)
}

func (e *noAnswerError) Unwrap() []error { return []error{ErrNotRunning, e.reason} }

// answered makes the end of a session that was there a noAnswerError.
func answered(name string, err error) error {
	if errors.Is(err, agentclient.ErrAgentDead) {
		return &noAnswerError{name, err}
	}
	return err
}

// connectWait bounds the wait of a new session: it is more than a starting sandbox takes from its socket to its first
// answer.
const connectWait = state.BootTimeout + 30*time.Second

// answerWait bounds it for a sandbox that was ready, which has no boot left, on a machine under heavy load.
const answerWait = 30 * time.Second

func notRunning(name string) error {
	return fmt.Errorf("%w: %s; `msb start %s` starts it", ErrNotRunning, name, name)
}

// watchSession reports the end of the session as the end of the sandbox.
func (s *Sandbox) watchSession() {
	<-s.client.Done()
	s.failure = s.client.Err()
	// The supervisor stores the reason before its process ends and the socket is removed.
	for deadline := time.Now().Add(lastWordWait); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // waits for another process's file
		var end End
		if _, err := os.Lstat(s.run.dir); errors.Is(err, fs.ErrNotExist) {
			break // removed, and with it the reason
		}
		if conn, err := state.DialControl(s.run.dir); err == nil {
			_ = conn.Close()
			if errors.Is(s.failure, agentclient.ErrClosed) {
				break // by us: the sandbox lives on
			}
			continue
		}
		if state.ReadJSON(s.run.dir, state.EndFile, &end) == nil {
			s.failure = fmt.Errorf("%w: %s was stopped meanwhile, or its guest shut down; `msb start %s` starts it", ErrNotRunning, s.name, s.name)
			if end.Message != "" {
				s.failure = state.FailAs(end.Kind, errors.New(end.Message))
			}
			break
		}
	}
	close(s.over)
}

// missing says that there is no sandbox of that name; err is why its directory can't be read.
func missing(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %s; `msb ls` lists those there are", ErrNoSandbox, name)
}
