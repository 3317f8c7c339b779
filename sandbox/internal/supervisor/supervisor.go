package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/journal"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/sandbox/sshd"
)

// endWait bounds the time from the sandbox's end to that of its supervisor. It is longer than the wait of whoever
// asked for the end.
const endWait = 2 * state.StopWait

// supervisor is the process that owns one sandbox: gateway, secrets, machine and run directory.
type supervisor struct {
	plan     *state.Plan
	policy   *policies.Policy
	floor    *policies.Policy // nil for none
	out      *state.StatusLines
	control  net.Conn
	records  *journal.Records
	denials  audit.Denials
	gateway  *gateway.Gateway
	dialer   gateway.Dialer // of the gateway; nil is the host's network
	ports    ports
	ssh      forwards
	sshd     sshd.Server
	peers    peers
	named    named
	caller   caller
	machine  vm.Machine
	backend  vm.Backend
	link     netstack.Link
	mac      net.HardwareAddr
	pod      *podNetwork // nil for no pod
	podPorts podPorts
	// cacheDisk is what caches begin with; the zero value is nothing.
	cacheDisk agentclient.Disk
	agent     *agentclient.Client
	shared    sharedPort
	transfer  transferDisk
	// greeted is agent, for callers that may come before it is set.
	greeted  atomic.Pointer[agentclient.Client]
	jobs     *jobkeeper.Keeper
	life     life
	access   access
	restart  restart
	pause    pause
	memory   memory
	children children

	now   func() time.Time                  // for lifetimes and idleness
	looks func() (<-chan time.Time, func()) // when watchGuest looks, and what ends that
	// patience bounds how long the guest may take for a sign of life.
	patience func(context.Context) (context.Context, context.CancelFunc)

	started time.Time
	begun   time.Time // the same, on the monotonic clock

	signals signals

	ctx    context.Context // the sandbox's life
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
}

var (
	errCallerGone = errors.New("the caller has gone")
	errStopped    = fmt.Errorf("%w: it was stopped before it was ready", state.ErrNotRunning)
)

// Hooks are what the package above does for a supervisor.
type Hooks struct {
	Replan Replan
	// Children answers programs of a sandbox that may have children; nil for nobody.
	Children func(*state.Plan) (ChildCall, error)
}

// Run is the whole life of a supervisor process. Its exit code only says whether it could
// report the cause: the cause is in the status lines.
func Run(h Hooks) int { return RunOn(nil, h) }

// RunOn is Run on machines of a test's; nil is those of the plan's backend.
func RunOn(b vm.Backend, h Hooks) int {
	out := state.NewStatusLines(os.NewFile(state.StatusFD, "status"))
	err := superviseWith(out, b, h)
	if err != nil {
		f := &state.Failed{Kind: state.KindOf(err), Message: err.Error()}
		if out.Write(state.StatusLine{Failed: f}) != nil {
			return 1
		}
	}
	return 0
}

func superviseWith(out *state.StatusLines, b vm.Backend, h Hooks) error {
	if err := closeStrays(state.LockFD); err != nil {
		return err
	}
	for _, fd := range []int{state.PlanFD, state.StatusFD, state.ControlFD, state.LockFD} {
		syscall.CloseOnExec(fd) // the VMM inherits what it was given and nothing else
	}
	setName()
	fd, err := syscall.Dup(state.PlanFD) // whose number executeAgain needs
	if err != nil {
		return err
	}
	p, err := state.ReadPlan(os.NewFile(uintptr(fd), "plan"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "the sandbox's plan: %v\n", err) // nobody may read the status lines
		return err
	}
	if err := limitCore(); err != nil {
		return err
	}
	s := newSupervisor(p, out, nil)
	s.restart.replan, s.children.hook, s.started = h.Replan, h.Children, time.Now().UTC().Round(0)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	boundEnd(s.ctx, endWait, func() { os.Exit(1) })
	s.handleSignals()
	if p.Again != nil {
		s.caller.detached.Store(true)
	} else {
		file := os.NewFile(state.ControlFD, "control")
		if s.control, err = net.FileConn(file); err != nil { // on a duplicate; file stays open for caller.watch
			return err
		}
		go s.caller.watch(file)
	}
	if b != nil {
		return s.live(func() error { s.backend = b; return nil }, func() error { return nil })
	}
	return s.live(s.chooseBackend, hideMemory)
}

func newSupervisor(p *state.Plan, out *state.StatusLines, control net.Conn) *supervisor {
	s := &supervisor{plan: p, out: out, control: control}
	s.podPorts = newPodPorts(s)
	s.sshd.Guest, s.sshd.Dir, s.sshd.Name, s.sshd.User = sshGuest{s}, p.Dir, p.Name, p.Image.User
	s.sshd.Failed = func(err error) { fmt.Fprintln(os.Stderr, err) } // the supervisor's log
	s.ports.s, s.ssh.s, s.peers.s, s.named.s, s.caller.s, s.access.s, s.restart.s, s.pause.s, s.memory.s, s.children.s = s, s, s, s, s, s, s, s, s, s
	s.children.wait, s.children.log, s.now, s.looks, s.patience = childRequestWait, s.emit, time.Now, everyLook, livenessPatience
	return s
}

// live is the sandbox's life and its clean-up. choose finds the backend, hide keeps this process's memory from others.
func (s *supervisor) live(choose, hide func() error) error {
	err := s.run(choose, hide)
	if errors.Is(err, errCallerGone) {
		err = nil // which is how a sandbox ends; what could not be written down is still an error
		if s.plan.Name != "" && !s.caller.detached.Load() && !s.plan.Review {
			err = errStopped // if the caller is there still, somebody else ended it
		}
	}
	cleaned := s.cleanUp()
	err = errors.Join(err, cleaned, s.restart.next(err, cleaned), s.restart.giveUp(err))
	return errors.Join(err, s.removeDirectory(err))
}

// boundEnd calls exit if the clean-up takes longer than limit: a supervisor that hangs at a file of its user's would
// stay for ever, with the machine, when nobody knows of it any longer.
func boundEnd(ctx context.Context, limit time.Duration, exit func()) {
	context.AfterFunc(ctx, func() { time.AfterFunc(limit, exit) })
}

// run brings the sandbox up, serves it and returns why it ended.
func (s *supervisor) run(choose, hide func() error) error {
	s.begun = time.Now()
	usual := debug.SetGCPercent(startPercent)
	steps := []func() error{s.restart.wait, s.readPolicy, s.clearEnvironment, s.openRecords, func() error { return readPod(s) }, s.named.open, s.memory.open, s.peers.open, s.ports.openAll, choose, s.startMachine, hide, s.serveLink}
	for _, step := range steps {
		err := step()
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err != nil {
			return err // the host's: the guest's console can't explain it
		}
	}
	if err := s.greetAgent(); err != nil {
		return s.endCause(err)
	}
	s.transfer.unname()
	if err := s.shareDirectories(); errors.Is(err, agentclient.ErrAgentDead) {
		return s.endCause(err)
	} else if err != nil {
		return err
	}
	s.children.open()
	if err := errors.Join(s.openJobs(), s.beginLife()); err != nil {
		return err
	}
	if s.pod != nil {
		s.work.Go(s.podPorts.follow)
	}
	s.event(audit.SandboxStart, "")
	if err := s.announce(); err != nil {
		return err
	}
	if err := s.restart.run(); err != nil {
		return err
	}
	defer time.AfterFunc(settled, func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory() // since a sandbox waits most of its life
	}).Stop()
	return s.serve()
}

const (
	// startPercent is GOGC during a start: there is no collection before 32 MB are in use.
	startPercent = 800
	// settled is when what the start and the first command left behind is given back.
	settled = 2 * time.Second
)

// endCause prefers the machine's own account to an error that followed from its end.
func (s *supervisor) endCause(err error) error {
	if s.ctx.Err() != nil { // the failure followed from that
		return context.Cause(s.ctx)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ended := s.machine.Wait(ctx)
	switch {
	case ctx.Err() != nil: // it lives, so the error is not of its end
		return fmt.Errorf("%w%s", err, lastConsole(s.machine))
	case ended != nil:
		return ended
	}
	return fmt.Errorf("%w: the guest left its machine (%w)%s", agentclient.ErrAgentDead, err, lastConsole(s.machine))
}

// guestGone tells the main command's keeper that the guest ended by itself, and returns why it did.
func (s *supervisor) guestGone(why error) error {
	if errors.Is(why, agentclient.ErrAgentDead) {
		s.cancel(why)
	} else {
		s.cancel(fmt.Errorf("%w: %w", agentclient.ErrAgentDead, why))
	}
	return why
}

// lastConsole is what the guest last wrote, for an error that it may explain. A crash of the agent begins
// with its reason and goes on for pages: the beginning is what tells.
func lastConsole(m vm.Machine) string {
	const (
		whole = 64 << 10
		shown = 1 << 10
	)
	text := strings.ReplaceAll(m.ConsoleTail(whole), "\r", "")
	if text == "" {
		return ""
	}
	for _, begin := range []string{"fatal error: ", "panic: ", "SIGSEGV", "SIGABRT"} {
		if i := strings.Index(text, begin); i >= 0 {
			return "; the guest's agent crashed:\n" + text[i:min(len(text), i+shown)]
		}
	}
	return "; the guest's console ends:\n" + text[max(0, len(text)-shown):]
}

func (s *supervisor) readPolicy() error {
	p, err := policies.Parse(s.plan.PolicyName, []byte(s.plan.Policy), nil)
	if err != nil {
		return fmt.Errorf("the policy as handed over: %w", err)
	}
	s.plan.Holds.Apply(p)
	s.policy = p
	if s.floor, err = s.plan.ReadFloor(); err != nil {
		return fmt.Errorf("the operator's floor as handed over: %w", err)
	}
	return nil
}

func (s *supervisor) openRecords() (err error) {
	s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: s.plan.Audit, Labels: s.plan.AuditLabels, Pcap: s.plan.Pcap, PcapOptions: s.plan.PcapOptions, Learn: s.plan.Learn, Resume: s.plan.Name != ""})
	if err == nil {
		s.handleCaptureSignals()
	}
	return err
}

func (s *supervisor) openJobs() error {
	dir := filepath.Join(s.plan.Dir, state.JobsDir)
	s.jobs = &jobkeeper.Keeper{
		Dir: dir, Agent: s.agent, Ctx: s.ctx, Work: &s.work, Self: state.Identify(os.Getpid()), Restart: s.plan.Restart, Event: s.jobEvent,
		Hold:   s.restart.holds(),
		Room:   func() (int64, error) { return state.Spare(dir) },
		Failed: func(err error) { fmt.Fprintln(os.Stderr, err) }, // the supervisor's log
		Ended: func(name string) {
			if s.plan.AutoRemove && name == state.MainJob {
				s.cancel(errCallerGone)
			}
		},
	}
	if s.plan.Again != nil {
		return s.jobs.Settle(&s.plan.Again.Main)
	}
	return s.jobs.Settle(nil)
}

func (s *supervisor) chooseBackend() error {
	all := hypervisors.All(filepath.Join(s.plan.Home, state.KernelDir))
	choice := s.plan.Backend
	if s.memory.from != nil { // which no other can load
		choice = s.memory.from.Saved.Backend
	}
	backend, why, err := vm.Select(s.ctx, choice, all...)
	if err != nil {
		return err
	}
	s.backend = backend
	if s.memory.from != nil {
		why += ", from the memory that a snapshot saved"
	}
	return s.out.Write(state.StatusLine{Notice: why})
}
