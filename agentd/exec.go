//go:build linux

package agentd

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

const (
	// killGrace is the time between SIGTERM and SIGKILL at a timeout.
	killGrace = 2 * time.Second

	// drainGrace is how long output is awaited after the process has ended,
	// when another process holds the other end: a daemon left behind holds it
	// for ever. What it writes from then on is thrown away.
	drainGrace = 300 * time.Millisecond
)

// execution is one running exec.
type execution struct {
	stream agentpb.Agent_ExecServer
	proc   *workload.Process
	tty    bool
	stdin  *stdinQueue
	// session is the one in which the host started it.
	session *portSession

	sendMu sync.Mutex // gRPC allows one Send at a time

	fed        chan struct{} // closed when feedStdin has ended
	overCredit atomic.Bool
	timedOut   bool
}

// Exec implements agentpb.AgentServer.
func (s *server) Exec(stream agentpb.Agent_ExecServer) error {
	exit, err := s.exec(stream)
	if err != nil {
		return err
	}
	// The process holds no place any more: the host may start another as soon as it reads this.
	return stream.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: exit}})
}

// exec runs a process, and returns how it ended once nothing else is to be sent.
func (s *server) exec(stream agentpb.Agent_ExecServer) (*agentpb.Exit, error) {
	if s.execs.Add(1) > s.maxExecs {
		s.execs.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "%d processes run for the host already; wait for one to end", s.maxExecs)
	}
	defer s.execs.Add(-1)
	session := s.session.Load()
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	start := first.GetStart()
	if start == nil {
		return nil, status.Error(codes.InvalidArgument, "the first message of an exec must be start")
	}
	if start.GetContainer() != nil {
		return s.execInContainer(stream, start, session)
	}
	group := s.ops.Cgroup()
	if group != nil {
		defer group.Close()
	}
	command, err := s.command(start, group)
	if err != nil {
		return nil, err
	}
	proc, err := s.spawner.Start(command)
	if err != nil {
		return startFailed(err)
	}
	e := &execution{stream: stream, proc: proc, tty: start.GetTty(), stdin: newStdinQueue(), session: session, fed: make(chan struct{})}
	return s.run(e, time.Duration(start.GetTimeoutNs()), group)
}

// execInContainer is exec for a process of a container.
func (s *server) execInContainer(stream agentpb.Agent_ExecServer, start *agentpb.ExecStart, session *portSession) (*agentpb.Exit, error) {
	if s.containers == nil {
		return nil, status.Error(codes.FailedPrecondition, "this agent has no containers")
	}
	proc, group, done, err := s.containers.start(start.GetContainer())
	if _, known := status.FromError(err); err != nil && known {
		return nil, err
	}
	if err != nil {
		return startFailed(err)
	}
	defer done()
	e := &execution{stream: stream, proc: proc, tty: proc.Stderr == nil, stdin: newStdinQueue(), session: session, fed: make(chan struct{})}
	if !start.GetStdin() {
		e.stdin.end()
	}
	return s.run(e, 0, group)
}

func (s *server) command(start *agentpb.ExecStart, group *workload.Cgroup) (workload.Command, error) {
	c := workload.Command{
		Argv: start.GetArgv(), Env: workload.MergeEnv(s.environment(), start.GetEnv()), Dir: start.GetCwd(), MakeDir: start.GetMakeCwd(),
		User: start.GetUser(), TTY: start.GetTty(), Size: windowSize(start.GetSize()),
		Stdin: start.GetStdin(), Cgroup: group,
	}
	for _, l := range start.GetRlimits() {
		c.Rlimits = append(c.Rlimits, workload.Rlimit{Name: l.GetName(), Soft: l.GetSoft(), Hard: l.GetHard()})
	}
	var err error
	if !start.GetAgentsOwn() {
		if s.carries.Load() {
			c.Stage, err = self()
		}
		return c, err
	}
	if len(c.Argv) != 1 || c.Argv[0] != agentpb.SFTPServer {
		return c, status.Error(codes.InvalidArgument, "the agent has no program of that name")
	}
	if c.Program, err = self(); err != nil {
		return c, status.Error(codes.ResourceExhausted, err.Error())
	}
	return c, nil
}

// environment are the defaults of the last handshake.
func (s *server) environment() []string {
	if env := s.env.Load(); env != nil {
		return *env
	}
	return nil
}

func windowSize(w *agentpb.WindowSize) workload.Size {
	return workload.Size{Rows: uint16(min(w.GetRows(), 0xffff)), Cols: uint16(min(w.GetCols(), 0xffff))}
}

// startFailed tells a program that can't be started from a request that can't
// be met and from a machine that is at its end.
func startFailed(err error) (*agentpb.Exit, error) {
	var se *workload.StartError
	if errors.As(err, &se) {
		kind := agentpb.StartError_START_ERROR_NOT_EXECUTABLE
		if se.NotFound {
			kind = agentpb.StartError_START_ERROR_NOT_FOUND
		}
		return &agentpb.Exit{Code: int32(se.Code()), StartError: kind, Message: shown(se.Message)}, nil
	}
	if errors.Is(err, workload.ErrRequest) {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return nil, status.Error(codes.ResourceExhausted, err.Error())
}

// run drives the process to its end. The process is dead or
// being killed on every way out.
func (s *server) run(e *execution, timeout time.Duration, group *workload.Cgroup) (*agentpb.Exit, error) {
	ctx := e.stream.Context()
	defer e.closeStreams()
	started := &agentpb.Started{Pid: uint32(e.proc.PID), StdinWindow: agentpb.StdinWindowBytes}
	if err := e.send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: started}}); err != nil && !e.outlives() {
		kill(e.proc, group)
		return nil, err
	}
	go e.receive()
	go e.feedStdin()
	pumps := e.pumpOutput()
	s.supervise(ctx, e, timeout, group)
	e.stdin.close()
	held := pumps.drain(s.drainGrace)
	e.leave(held, &s.left)
	e.closeStreams()
	<-e.fed // nothing may follow the exit
	if e.overCredit.Load() {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d bytes of stdin sent ahead", agentpb.StdinWindowBytes)
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	exit := exitMessage(e.proc.Status())
	exit.TimedOut, exit.OutputHeld = e.timedOut, len(held) > 0
	exit.OomKilled = group != nil && group.OOMKilled()
	return exit, nil
}

// supervise returns when the process is reaped.
func (s *server) supervise(ctx context.Context, e *execution, timeout time.Duration, group *workload.Cgroup) {
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	cancelled := ctx.Done()
	for {
		select {
		case <-e.proc.Done():
			if e.timedOut && group != nil {
				group.Kill() // what the process left behind has had its time too
			}
			return
		case <-cancelled:
			cancelled = nil
			if !e.outlives() {
				kill(e.proc, group)
			}
		case <-expired:
			if e.timedOut {
				expired = nil
				kill(e.proc, group)
				continue
			}
			e.timedOut = true
			e.proc.SignalGroup(syscall.SIGTERM)
			e.proc.SignalGroup(syscall.SIGCONT) // a stopped process takes no SIGTERM
			t := time.NewTimer(s.killGrace)
			defer t.Stop()
			expired = t.C
		}
	}
}

// kill ends the process's group and, where there are control groups, whatever
// left it.
func kill(p *workload.Process, group *workload.Cgroup) {
	if group != nil {
		group.Kill()
	}
	p.SignalGroup(syscall.SIGKILL)
}

func exitMessage(ws syscall.WaitStatus) *agentpb.Exit {
	if ws.Signaled() {
		sig := ws.Signal()
		return &agentpb.Exit{Code: 128 + int32(sig), Signal: uint32(sig)}
	}
	return &agentpb.Exit{Code: int32(ws.ExitStatus())}
}

// outlives tells whether the session has ended because the machine was saved and goes on: the process goes on too, without
// a client. Its input ends, its output is thrown away.
func (e *execution) outlives() bool { return e.session.resumed.Load() }

func (e *execution) send(resp *agentpb.ExecResponse) error {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	return e.stream.Send(resp)
}

// leave hands streams that other processes hold to who reads them on. A terminal ends with its session, as when a
// window is closed.
func (e *execution) leave(held []*os.File, to *leftBehind) {
	if e.tty {
		return
	}
	for _, f := range held {
		for _, ours := range []**os.File{&e.proc.Stdout, &e.proc.Stderr} {
			if *ours == f {
				*ours = nil
			}
		}
		to.take(f)
	}
}

func (e *execution) closeStreams() {
	e.stdin.close()
	for _, f := range []*os.File{e.proc.Stdin, e.proc.Stdout, e.proc.Stderr} {
		if f != nil {
			f.Close()
		}
	}
}
