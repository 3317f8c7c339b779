package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
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
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/journal"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// endWait bounds the time from the sandbox's end to that of its supervisor. It is more than who asked for the end
// waits for.
const endWait = 2 * state.StopWait

// supervisor is the process that owns one sandbox: gateway, secrets, machine and run directory.
type supervisor struct {
	plan    *state.Plan
	policy  *policies.Policy
	floor   *policies.Policy // nil for none
	out     *state.StatusLines
	control net.Conn
	records *journal.Records
	denials audit.Denials
	gateway *gateway.Gateway
	ports   ports
	ssh     forwards
	peers   peers
	named   named
	caller  caller
	machine vm.Machine
	backend vm.Backend
	link    netstack.Link
	mac     net.HardwareAddr
	// cacheDisk is what caches begin with; the zero value is nothing.
	cacheDisk agentclient.Disk
	agent     *agentclient.Client
	// greeted is agent, for who comes before it.
	greeted atomic.Pointer[agentclient.Client]
	jobs    *jobkeeper.Keeper
	life    life
	access  access
	restart restart
	pause   pause

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

// Run is the whole life of a supervisor process. Its exit code only says whether it could
// report the cause: the cause is in the status lines.
func Run(replan Replan) int { return RunOn(nil, replan) }

// RunOn is Run on machines of a test's; nil is those of the plan's backend.
func RunOn(b vm.Backend, replan Replan) int {
	out := state.NewStatusLines(os.NewFile(state.StatusFD, "status"))
	err := superviseWith(out, b, replan)
	if err != nil {
		f := &state.Failed{Kind: state.KindOf(err), Message: err.Error()}
		if out.Write(state.StatusLine{Failed: f}) != nil {
			return 1
		}
	}
	return 0
}

func superviseWith(out *state.StatusLines, b vm.Backend, replan Replan) error {
	if err := closeStrays(state.LockFD); err != nil {
		return err
	}
	for _, fd := range []int{state.PlanFD, state.StatusFD, state.ControlFD, state.LockFD} {
		syscall.CloseOnExec(fd) // the VMM inherits what it was given and nothing else
	}
	fd, err := syscall.Dup(state.PlanFD) // whose number executeAgain needs
	if err != nil {
		return err
	}
	p, err := state.ReadPlan(os.NewFile(uintptr(fd), "plan"))
	if err != nil {
		return err
	}
	if err := limitCore(); err != nil {
		return err
	}
	s := newSupervisor(p, out, nil)
	s.restart.replan, s.started = replan, time.Now().UTC().Round(0)
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
	s.ports.s, s.ssh.s, s.peers.s, s.named.s, s.caller.s, s.access.s, s.restart.s, s.pause.s = s, s, s, s, s, s, s, s
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

// run brings the sandbox up, serves it and returns why it ended.
func (s *supervisor) run(choose, hide func() error) error {
	s.begun = time.Now()
	steps := []func() error{s.restart.wait, s.readPolicy, s.clearEnvironment, s.openRecords, s.named.open, s.peers.open, s.ports.openAll, choose, s.startMachine, hide, s.serveLink}
	for _, step := range steps {
		err := step()
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err != nil {
			return err // of the host's side: the guest's console has nothing to say about it
		}
	}
	if err := s.greetAgent(); err != nil {
		return s.endCause(err)
	}
	if err := s.shareDirectories(); errors.Is(err, agentclient.ErrAgentDead) {
		return s.endCause(err)
	} else if err != nil {
		return err
	}
	if err := errors.Join(s.openJobs(), s.beginLife()); err != nil {
		return err
	}
	s.event(audit.SandboxStart, "")
	if err := s.announce(); err != nil {
		return err
	}
	if err := s.restart.run(); err != nil {
		return err
	}
	debug.FreeOSMemory() // of the start: a sandbox waits most of its life
	return s.serve()
}

// endCause prefers the machine's own account to an error that followed from its end.
func (s *supervisor) endCause(err error) error {
	if s.ctx.Err() != nil { // whatever failed, failed for that
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

// clearEnvironment takes the variables out of this process that lead into a directory that the guest may write to
// (PYTHONPATH, LD_LIBRARY_PATH): a secret's command would run what the guest puts there.
func (s *supervisor) clearEnvironment() error {
	var writable []string
	for _, d := range s.plan.Directories {
		if d.Writable || d.CopyOnWrite { // which is written to by what is applied
			writable = append(writable, d.Host)
		}
	}
	if len(writable) == 0 {
		return nil
	}
	secrets := s.policy.Secrets
	if s.floor != nil {
		secrets = slices.Concat(secrets, s.floor.Secrets)
	}
	kept := grants.Environ(os.Environ(), writable)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		isSecret := func(o policies.Secret) bool { return o.From.Kind == policies.FromEnv && o.From.Value == name }
		if name == "PATH" || slices.Contains(kept, v) || slices.ContainsFunc(secrets, isSecret) {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) openRecords() (err error) {
	s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: s.plan.Audit, Pcap: s.plan.Pcap, PcapOptions: s.plan.PcapOptions, Learn: s.plan.Learn, Resume: s.plan.Name != ""})
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
	backend, why, err := vm.Select(s.ctx, s.plan.Backend, all...)
	if err != nil {
		return err
	}
	s.backend = backend
	return s.out.Write(state.StatusLine{Notice: why})
}

// cleanUp ends everything that run started, in the order that loses nothing: the guest first, so that
// its last bytes are judged and written down.
func (s *supervisor) cleanUp() error {
	s.cancel(errCallerGone)
	var errs []error
	if s.agent != nil {
		errs = append(errs, s.stopAgent())
	}
	if s.machine != nil {
		_ = s.machine.Kill() // its only error is that it is gone already
	}
	if s.gateway != nil {
		errs = append(errs, s.gateway.Close())
		if denied := s.denials.Summary(); !denied.Empty() {
			_ = s.out.Write(state.StatusLine{Denied: &denied}) // the caller of one with a name may have gone
		}
	}
	s.work.Wait()
	if s.gateway != nil {
		errs = append(errs, s.access.settleOffline())
	}
	if s.records != nil {
		s.event(audit.SandboxStop, "")
		if s.goesWithRun() {
			s.event(audit.SandboxRemove, "")
		}
		errs = append(errs, s.records.Close(s.policy))
	}
	return errors.Join(errs...)
}

// stopAgent lets a guest with a disk that will be kept, or a directory of the host's, write back what it holds.
func (s *supervisor) stopAgent() error {
	dead := errors.Is(context.Cause(s.ctx), agentclient.ErrAgentDead) // it would be waited for while callers wait for why
	keeps := (s.plan.Keep || s.plan.Name != "") && s.plan.UpperDisk != ""
	if (keeps || s.plan.Shares()) && !dead {
		if s.pause.on.Load() {
			_ = s.machine.Resume() // its only error is that it is gone
		}
		ctx, cancel := context.WithTimeout(context.Background(), state.SyncTimeout)
		defer cancel()
		if s.life.announced() {
			_ = s.takeBackNotice(ctx) // a start removes one that is left, too
		}
		if err := s.agent.Shutdown(ctx); err == nil {
			_ = s.machine.Wait(ctx)
		}
	}
	_ = s.agent.Close() // its only error is that the stream is closed already
	return nil
}

// goesWithRun reports whether this process removes the sandbox of a name. A caller that is there does so itself.
func (s *supervisor) goesWithRun() bool {
	return s.plan.Name != "" && s.plan.AutoRemove && (s.caller.detached.Load() || errors.Is(context.Cause(s.ctx), errCallerGone)) && !s.named.removed()
}

// removeDirectory removes what stays of no run. end is why it is over.
func (s *supervisor) removeDirectory(end error) error {
	switch {
	case s.goesWithRun():
		err := state.RemoveNamed(s.plan.Home, s.plan.Name)
		if err != nil { // it stays as any other
			err = errors.Join(err, s.named.end(errors.Join(end, err)))
		}
		return err
	case s.plan.Name != "":
		return s.named.end(end)
	case s.plan.Keep:
		return os.Rename(s.plan.Dir, filepath.Join(s.plan.Home, state.KeptDir, s.plan.ID)) // where no sweep looks
	}
	return state.RemoveOwn(s.plan.Dir, state.RunForm)
}
