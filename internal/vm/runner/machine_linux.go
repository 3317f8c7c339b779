package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// errTail is how much of the console goes into an error's text.
const errTail = 2 << 10

// panicTail is the same of a panic.
const panicTail = 6 << 10

// machine is a VMM process with its channels.
type machine struct {
	proc        *process
	agent, dirs net.Conn
	consoleFile io.ReadCloser
	log         *console
	confinement []string

	stderrFile *os.File
	stderr     *console // the VMM's own words, in memory only

	copying sync.WaitGroup
	done    chan struct{}
	err     error // set before done is closed
}

var _ vm.Machine = (*machine)(nil)

func newMachine(proc *process, l *Launch, log *console, stderr *os.File) *machine {
	m := &machine{
		proc: proc, agent: l.agent, dirs: l.dirs, consoleFile: l.Console, log: log,
		stderrFile: stderr, stderr: &console{tail: tail{max: consoleTail}},
		done: make(chan struct{}),
	}
	m.copying.Go(func() { m.stderr.copyFrom(m.stderrFile) })
	return m
}

// abandon ends a process that never became a machine. The channels stay: they
// are needed for the next attempt.
func (m *machine) abandon() {
	_ = m.proc.kill()
	m.copying.Wait()
	_ = m.stderrFile.Close()
}

// run takes the channels over and watches until the end.
func (m *machine) run() {
	m.copying.Go(func() { m.log.copyFrom(m.consoleFile) })
	go m.watch()
}

// watch waits for the process's end and releases everything.
func (m *machine) watch() {
	<-m.proc.done
	// Both readers end by themselves: the VMM held the only other ends.
	m.copying.Wait()
	m.err = m.verdict()
	for _, c := range []interface{ Close() error }{m.consoleFile, m.stderrFile, m.log} {
		_ = c.Close()
	}
	close(m.done)
}

// verdict says how the machine ended.
func (m *machine) verdict() error {
	state := m.proc.cmd.ProcessState
	text := m.log.lastLines(consoleTail)
	switch ws, ok := state.Sys().(syscall.WaitStatus); {
	case m.proc.wasKilled():
		return vm.ErrKilled
	case ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL:
		return fmt.Errorf("%w by someone else, perhaps because the host ran out of memory", vm.ErrKilled)
	case panicked(text):
		cause := vm.ErrGuestPanic
		if outOfMemory(text) {
			cause = vm.ErrGuestOutOfMemory
		}
		return fmt.Errorf("%w; its console:\n%s", cause, panicText(text))
	case !state.Success():
		return fmt.Errorf("%w (%v): %s\n%s", vm.ErrVMM, state, strings.TrimSpace(m.stderr.lastLines(errTail)), m.log.lastLines(errTail))
	}
	return nil
}

// The kernel's words (kernel/panic.c, mm/oom_kill.c). A guest's root can print
// them too: they decide about the text of an error, nothing else.
func panicked(console string) bool { return strings.Contains(console, "Kernel panic - not syncing") }

// panicText is what the kernel printed of its panic, from the line that says why (arch/x86/kernel/dumpstack.c), which
// registers and a trace follow: at most panicTail of it.
func panicText(console string) string {
	begin := strings.LastIndex(console, "Kernel panic - not syncing")
	for _, words := range []string{"[#1]", "BUG: ", "Oops: ", "general protection fault", "invoked oom-killer"} {
		if at := strings.Index(console, words); at >= 0 {
			begin = min(begin, at)
		}
	}
	begin = strings.LastIndexByte(console[:begin], '\n') + 1
	last := console[max(begin, len(console)-errTail):]
	if first := console[begin:]; len(first) > panicTail {
		return first[:panicTail-len(last)] + "\n...\n" + last
	}
	return console[begin:]
}

func outOfMemory(console string) bool {
	for _, words := range []string{"Out of memory", "System is deadlocked on memory", "invoked oom-killer"} {
		if strings.Contains(console, words) {
			return true
		}
	}
	return false
}

// Agent implements vm.Machine.
func (m *machine) Agent() vm.Conn { return m.agent }

// Directories implements vm.Machine.
func (m *machine) Directories() vm.Conn { return m.dirs }

// PID implements vm.Machine.
func (m *machine) PID() int { return m.proc.cmd.Process.Pid }

// Confinement implements vm.Machine.
func (m *machine) Confinement() []string { return m.confinement }

// Restored implements vm.Machine.
func (m *machine) Restored() bool { return false }

// ConsoleTail implements vm.Machine.
func (m *machine) ConsoleTail(n int) string { return m.log.lastLines(n) }

// Done implements vm.Machine.
func (m *machine) Done() <-chan struct{} { return m.done }

// Wait implements vm.Machine.
func (m *machine) Wait(ctx context.Context) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pause implements vm.Machine.
func (m *machine) Pause() error { return m.proc.signal(unix.SIGSTOP) }

// Resume implements vm.Machine.
func (m *machine) Resume() error { return m.proc.signal(unix.SIGCONT) }

// Kill implements vm.Machine. The channels are closed too, since nothing
// answers on them any more.
func (m *machine) Kill() error {
	err := m.proc.kill()
	if err == nil {
		<-m.done
	}
	for _, c := range []net.Conn{m.agent, m.dirs} {
		if cerr := c.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}
