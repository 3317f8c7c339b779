package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Signal is a Linux signal number, whatever system the host runs.
type Signal uint32

// The signals that callers send most; numbers from signal(7) for x86 and arm.
const (
	SIGHUP  Signal = 1
	SIGINT  Signal = 2
	SIGQUIT Signal = 3
	SIGKILL Signal = 9
	SIGTERM Signal = 15
)

// Size of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Rlimit is a resource limit by its name in container tools: nofile, nproc,
// core, cpu, fsize, as, data, stack, memlock, …
type Rlimit struct {
	Name       string
	Soft, Hard uint64
}

// ExecOptions says what to run in the guest.
type ExecOptions struct {
	// Argv[0] is looked up in the guest's PATH unless it holds a slash.
	Argv []string
	// AgentsOwn runs a program of the guest's agent in place of the image's: Argv is agentpb.SFTPServer then.
	AgentsOwn bool
	// Env is added to the sandbox's defaults: KEY=value.
	Env []string
	// Dir is the working directory; empty means "/". A missing one is made with MakeDir, and
	// NotFound without it.
	Dir     string
	MakeDir bool
	// User is "", name, uid, name:group or uid:gid; empty means root.
	User string
	// Timeout is kept by the guest: SIGTERM, then SIGKILL. 0 means none.
	Timeout time.Duration
	Rlimits []Rlimit

	// TTY gives the process a terminal of Size; its stderr is in Stdout then.
	TTY  bool
	Size Size

	// Stdin may be nil: the process reads end of file. A Read that is under
	// way when the process ends is left behind; it ends by itself. One that
	// returns ErrDetach leaves the process running, if Serve is between: Exec
	// returns ErrDetach then.
	Stdin io.Reader
	// JobInput is for jobs, which take no Stdin: their standard input stays open for WriteJob.
	JobInput bool
	// Stdout and Stderr may be nil: what is written there is dropped.
	Stdout, Stderr io.Writer

	// Container runs a process of a container; of the fields above only Stdin, Stdout and Stderr count then.
	Container *ContainerExec

	// OnStart is called once the program runs, before any output; nil for none.
	OnStart func()
	// Tell gets the process's events, as Services.Tell does; nil for none.
	Tell func(ExecEvent)

	// Resize and Signals may be nil or closed at any time.
	Resize  <-chan Size
	Signals <-chan Signal
}

// StartError is why a program was not started.
type StartError int

// The reasons a program was not started.
const (
	Started StartError = iota
	// NotFound means that there is no such program or working directory: code 127.
	NotFound
	// NotExecutable means that it exists and can't be run, or entered: code 126.
	NotExecutable
)

// ExitStatus is how an exec ended.
type ExitStatus struct {
	// Code is 0 to 255; 128 + Signal when a signal ended the process.
	Code       int
	Signal     Signal
	TimedOut   bool
	OOMKilled  bool
	StartError StartError
	// Message is the guest's sentence on StartError.
	Message string
	// OutputHeld says that another process of the guest still held the output open; what that
	// process writes later is discarded.
	OutputHeld bool
}

// Exec runs a process in the guest and returns when it has ended and its
// output is written. Cancelling ctx kills its process group. An error means
// that there is no exit status: a session that ended, a refusal (ErrRefused,
// ErrBusy), or a writer of the caller that failed.
func (c *Client) Exec(ctx context.Context, opts ExecOptions) (ExitStatus, error) {
	if opts.Container == nil && (len(opts.Argv) == 0 || opts.Argv[0] == "") {
		return ExitStatus{}, fmt.Errorf("%w: no program named", ErrRefused)
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := c.api.Exec(callCtx)
	if err != nil {
		return ExitStatus{}, c.callError(ctx, err)
	}
	s, start := &execSender{call: call, stdin: newWindow()}, opts.start()
	if opts.Tell != nil {
		s.seen = c.witness(start.GetStart(), opts.Tell)
		defer s.seen.end()
	}
	if err := s.send(start); err != nil && !errors.Is(err, io.EOF) {
		return ExitStatus{}, c.callError(ctx, err)
	}
	return c.receiveExec(ctx, callCtx, s, opts)
}

// receiveExec is the one reader of the call: output to the writers, until exit.
func (c *Client) receiveExec(ctx, callCtx context.Context, s *execSender, opts ExecOptions) (ExitStatus, error) {
	var order execOrder
	for {
		resp, err := s.call.Recv()
		if errors.Is(err, io.EOF) && s.detached.Load() {
			return ExitStatus{}, ErrDetach
		}
		if errors.Is(err, io.EOF) {
			return ExitStatus{}, c.fail(fmt.Errorf("%w: exec ended without an exit status", ErrProtocol))
		}
		if err != nil {
			return ExitStatus{}, c.callError(ctx, err)
		}
		if err := order.check(resp); err != nil {
			return ExitStatus{}, c.fail(err)
		}
		if s.seen != nil {
			s.seen.saw(resp)
		}
		switch r := resp.GetResponse().(type) {
		case *agentpb.ExecResponse_Started:
			s.stdin.open(int(min(r.Started.GetStdinWindow(), agentpb.StdinWindowBytes)))
			go s.forwardControls(callCtx, opts.Resize, opts.Signals)
			if opts.Container != nil && opts.Container.OnPID != nil {
				opts.Container.OnPID(r.Started.GetPid())
			}
			if opts.OnStart != nil {
				opts.OnStart()
			}
			if opts.Stdin != nil {
				go s.forwardStdin(callCtx, opts.Stdin)
			}
		case *agentpb.ExecResponse_Stdout:
			err = write(opts.Stdout, r.Stdout)
		case *agentpb.ExecResponse_Stderr:
			err = write(opts.Stderr, r.Stderr)
		case *agentpb.ExecResponse_StdinAck:
			if !s.stdin.ack(int(r.StdinAck)) {
				return ExitStatus{}, c.fail(fmt.Errorf("%w: it acknowledged stdin that was not sent", ErrProtocol))
			}
		case *agentpb.ExecResponse_Exit:
			return exitStatus(r.Exit), nil
		}
		if err != nil {
			return ExitStatus{}, fmt.Errorf("write the output of %q: %w", opts.name(), err)
		}
	}
}

func write(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}

func exitStatus(e *agentpb.Exit) ExitStatus {
	st := ExitStatus{
		Code:       int(e.GetCode()),
		Signal:     Signal(e.GetSignal()),
		TimedOut:   e.GetTimedOut(),
		OOMKilled:  e.GetOomKilled(),
		Message:    guestText(e.GetMessage()),
		OutputHeld: e.GetOutputHeld(),
	}
	switch e.GetStartError() {
	case agentpb.StartError_START_ERROR_NOT_FOUND:
		st.StartError = NotFound
	case agentpb.StartError_START_ERROR_NOT_EXECUTABLE:
		st.StartError = NotExecutable
	case agentpb.StartError_START_ERROR_UNSPECIFIED:
	}
	return st
}

// name is what errors call the process.
func (o *ExecOptions) name() string {
	if o.Container != nil {
		return "a process of " + o.Container.ID
	}
	return o.Argv[0]
}

// start is the first message of the call.
func (o ExecOptions) start() *agentpb.ExecRequest {
	m := &agentpb.ExecStart{
		Argv: o.Argv, Env: o.Env, Cwd: o.Dir, User: o.User, Tty: o.TTY,
		TimeoutNs: int64(o.Timeout), Stdin: o.Stdin != nil, MakeCwd: o.MakeDir, AgentsOwn: o.AgentsOwn,
	}
	if o.TTY {
		m.Size = o.Size.message()
	}
	if x := o.Container; x != nil {
		m.Container = &agentpb.ContainerStart{Container: x.ID, ExecId: x.ExecID}
		if x.Process != nil {
			m.Container.Process = x.Process.message()
		}
	}
	for _, r := range o.Rlimits {
		m.Rlimits = append(m.Rlimits, &agentpb.Rlimit{Name: r.Name, Soft: r.Soft, Hard: r.Hard})
	}
	return &agentpb.ExecRequest{Request: &agentpb.ExecRequest_Start{Start: m}}
}

// execOptions are the ExecOptions that start was made from, without streams and channels.
func execOptions(m *agentpb.ExecStart) ExecOptions {
	o := ExecOptions{
		Argv: m.GetArgv(), Env: m.GetEnv(), Dir: m.GetCwd(), MakeDir: m.GetMakeCwd(), User: m.GetUser(),
		Timeout: time.Duration(m.GetTimeoutNs()), TTY: m.GetTty(), AgentsOwn: m.GetAgentsOwn(),
	}
	o.Size = sizeOf(m.GetSize())
	for _, r := range m.GetRlimits() {
		o.Rlimits = append(o.Rlimits, Rlimit{Name: r.GetName(), Soft: r.GetSoft(), Hard: r.GetHard()})
	}
	return o
}

func sizeOf(m *agentpb.WindowSize) Size {
	return Size{Rows: uint16(min(m.GetRows(), math.MaxUint16)), Cols: uint16(min(m.GetCols(), math.MaxUint16))}
}

func (s Size) message() *agentpb.WindowSize {
	return &agentpb.WindowSize{Rows: uint32(s.Rows), Cols: uint32(s.Cols)}
}
