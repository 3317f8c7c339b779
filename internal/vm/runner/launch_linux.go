package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// past is a deadline that has passed: it makes a blocked read return.
var past = time.Unix(1, 0)

// Launch is everything that it takes to start a machine.
type Launch struct {
	// Plan is what the process becomes.
	Plan Plan
	// Program is what the process starts in.
	Program Program
	// Files are inherited by the VMM as FirstFileFD and up. Start closes them
	// in this process.
	Files []*os.File
	// agent, dirs and Console are this side's ends of the channels; the
	// machine takes them over.
	agent, dirs net.Conn
	Console     io.ReadCloser
	// consoleLog is Spec.ConsoleLog.
	consoleLog string
	// limits are of the VMM's control group, where there can be one.
	limits limits
	// Recording records system calls instead of refusing them; nil refuses.
	Recording *Recording
}

// Start starts the machine. It returns when the VMM runs, confined, or with
// the reason why it does not.
func (l *Launch) Start(ctx context.Context) (vm.Machine, error) {
	defer closeAll(l.Files)
	m, err := l.start(ctx)
	if err != nil {
		return nil, errors.Join(err, l.closeChannels())
	}
	return m, nil
}

func (l *Launch) start(ctx context.Context) (*machine, error) {
	if err := l.resolve(); err != nil {
		return nil, err
	}
	log, err := newConsole(l.consoleLog)
	if err != nil {
		return nil, fmt.Errorf("console log: %w", err)
	}
	m, err := l.attempt(ctx, log, true)
	var ns *namespaceError
	if errors.As(err, &ns) {
		// Try again without namespaces: Landlock and seccomp still confine it.
		m, err = l.attempt(ctx, log, false)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return m, nil
}

// resolve turns the plan's paths into real ones, since the VMM's root has none
// of the host's links. A missing file is an error here, where it can still be
// named as the caller gave it; directories that some distributions lack are
// left out by the runner.
func (l *Launch) resolve() error {
	for _, paths := range [][]string{l.Plan.ReadWrite, l.Plan.Devices} {
		for i, path := range paths {
			real, err := clean(path)
			if err != nil {
				return err
			}
			paths[i] = real
		}
	}
	return nil
}

// attempt starts the process once. An error that wraps namespaceError means
// that it may go without namespaces.
func (l *Launch) attempt(ctx context.Context, log *console, namespaces bool) (*machine, error) {
	plan := l.Plan
	plan.Namespaces, plan.Recording = namespaces, l.Recording != nil
	plan.RecordAll = plan.Recording && l.Recording.All
	plan.Files = len(l.Files)
	if !plan.Itself {
		plan.ReadOnly = append(slices.Clone(plan.ReadOnly), filepath.Clean(plan.Argv[0]))
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	proc, statusR, err := spawnFirst(plan, l.Program, l.Files, errW, l.limits)
	_ = errW.Close()
	if err != nil {
		_ = errR.Close()
		if namespaces && forbidden(err) {
			return nil, &namespaceError{err}
		}
		return nil, fmt.Errorf("%w: start its process: %w", vm.ErrVMM, err)
	}
	m := newMachine(proc, l, log, errR)
	st, err := awaitReady(ctx, statusR, func(listener int) error { return l.Recording.follow(m.PID(), listener) })
	if err == nil {
		err = st.err()
	}
	if err != nil {
		m.abandon()
		if st.Namespaces && namespaces {
			return nil, &namespaceError{err}
		}
		return nil, err
	}
	m.confinement = st.Confinement
	if proc.cgroup != nil {
		m.confinement = append(m.confinement, l.limits.String())
	}
	m.run()
	return m, nil
}

// forbidden tells whether clone refused to make namespaces.
func forbidden(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSPC, unix.EUSERS, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Discard lets go of a launch that will not be started.
func (l *Launch) Discard() error {
	closeAll(l.Files)
	return l.closeChannels()
}

func (l *Launch) closeChannels() error {
	return errors.Join(l.agent.Close(), l.dirs.Close(), l.Console.Close())
}
