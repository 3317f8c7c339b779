package runner

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/msb-project/msb/internal/vm"
)

// Trial is what a VMM that starts now would be confined by.
type Trial struct {
	// inForce is what vm.Machine.Confinement would say.
	inForce []string
	// Namespaces is why the VMM would have none of its own; nil if it would.
	Namespaces error
	// Landlock is the kernel's version of it, 0 for none.
	Landlock int
	// Cgroup tells whether the VMM would have a control group that bounds its memory and threads.
	Cgroup bool
}

// trialProgram is what a trial executes. It is on no host: a trial shows
// whether a VMM would get as far as execve.
const trialProgram = "/nosuch-msb-trial"

// Try does what starting a VMM does, up to its first instruction, in a process
// that ends there. An error means that no VMM would start here, because it
// can't be confined: seccomp is refused, say.
func Try(ctx context.Context, program Program) (Trial, error) {
	t := Trial{Landlock: landlockABI()}
	var err error
	if t.inForce, t.Cgroup, err = try(ctx, program, true); err == nil {
		return t, nil
	}
	if !isNamespaceError(err) {
		return t, err
	}
	t.Namespaces = err
	t.inForce, t.Cgroup, err = try(ctx, program, false)
	return t, err
}

// try is one attempt, as Launch.attempt makes it.
func try(ctx context.Context, program Program, namespaces bool) (inForce []string, bounded bool, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, false, err
	}
	defer null.Close()
	l := limits{vmmMemory, vmmThreads}
	proc, statusR, err := spawnFirst(Plan{Argv: []string{trialProgram}, Namespaces: namespaces}, program, nil, null, l)
	if err != nil {
		if namespaces && forbidden(err) {
			return nil, false, &namespaceError{err}
		}
		return nil, false, fmt.Errorf("%w: start its process: %w", vm.ErrVMM, err)
	}
	st, err := awaitReady(ctx, statusR, nil)
	err = errors.Join(err, proc.kill())
	switch {
	case err != nil:
		return nil, false, err
	case len(st.Confinement) > 0: // the error is that there is no such program
		if proc.cgroup != nil {
			st.Confinement = append(st.Confinement, l.String())
		}
		return st.Confinement, proc.cgroup != nil, nil
	case st.Namespaces && namespaces:
		return nil, false, &namespaceError{st.err()}
	case st.err() != nil:
		return nil, false, st.err()
	}
	return nil, false, fmt.Errorf("%w: its process reported nothing", vm.ErrVMM)
}
