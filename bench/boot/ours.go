//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// What both sides give a guest.
const (
	guestCPUs      = 1
	guestMemoryMiB = 512
)

var _ side = (*ours)(nil)

// ours is msb.
type ours struct{ program, home, backend string }

func (m *ours) env() []string {
	return append(os.Environ(), sandbox.EnvHome+"="+m.home)
}

// runOnce measures one `msb run` that boots its guest.
func (m *ours) runOnce(ctx context.Context, f values) error {
	return m.run(ctx, f, "--cold", seriesFirst, seriesRun)
}

// runWarm measures one that starts from a saved machine.
func (m *ours) runWarm(ctx context.Context, f values) error {
	return m.run(ctx, f, "--cold=false", seriesWarmFirst, seriesWarmRun)
}

func (m *ours) run(ctx context.Context, f values, cold, first, exit string) error {
	t, err := timeCommand(ctx, m.env(), "hi", m.program, "run", "-q", cold, "--vm", m.backend,
		"--cpus", fmt.Sprint(guestCPUs), "--memory", fmt.Sprintf("%dM", guestMemoryMiB), "--", "echo", "hi")
	if err != nil {
		return err
	}
	f.took(first, t.first)
	f.took(exit, t.exit)
	return nil
}

// process measures what starting msb costs by itself.
func (m *ours) process(ctx context.Context, f values) error {
	return timeProcess(ctx, m.env(), m.program, f, seriesProcess)
}

// processStarts is how often a tool's start is timed.
const processStarts = 5

// timeProcess times a program's start and end alone.
func timeProcess(ctx context.Context, env []string, program string, f values, series string) error {
	for i := range processStarts + 1 {
		var out bytes.Buffer
		start := time.Now()
		if err := output(ctx, &out, env, program, "--version"); err != nil {
			return err
		}
		if out.Len() == 0 {
			return fmt.Errorf("%s --version: %w", program, errOutput)
		}
		if i > 0 { // the first reads the program from the disk
			f.took(series, time.Since(start))
		}
	}
	return nil
}

// execute measures n round trips in one running sandbox, and then the memory
// of its processes.
func (m *ours) execute(ctx context.Context, n int, f values) error {
	start := time.Now()
	sb, err := sandbox.Start(ctx, m.config(false))
	if err != nil {
		return err
	}
	f.took(seriesReady, time.Since(start))
	err = roundTrips(ctx, sb, n, f)
	if err == nil {
		err = m.memory(f)
	}
	start = time.Now()
	if cerr := sb.Close(); err == nil {
		err = cerr
	}
	f.took(seriesClose, time.Since(start))
	return err
}

func roundTrips(ctx context.Context, sb *sandbox.Sandbox, n int, f values) error {
	for i := range n + 1 {
		start := time.Now()
		st, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"/bin/true"}})
		if err != nil {
			return err
		}
		if st.Code != 0 {
			return fmt.Errorf("/bin/true in the guest: exit code %d", st.Code)
		}
		if i > 0 { // the first reads the program from the disk
			f.took(seriesExec, time.Since(start))
		}
	}
	return nil
}

// memory is of the supervisor, and of everything below it: the VMM, which
// holds the pages that the guest has touched.
func (m *ours) memory(f values) error {
	list, err := processes()
	if err != nil {
		return err
	}
	for _, p := range below(list, os.Getpid()) {
		if len(p.argv) < 2 || p.argv[1] != sandbox.Verb {
			continue
		}
		var vmm int64
		for _, q := range below(list, p.pid) {
			vmm += q.resident
		}
		f.add(seriesSupervisor, mib(p.resident))
		f.add(seriesVMM, mib(vmm))
		return nil
	}
	return fmt.Errorf("no supervisor below process %d", os.Getpid())
}

// agentSize is that of the agent's root disk, which is all that the agent
// needs on a disk.
func (m *ours) agentSize(f values) error {
	disks, err := filepath.Glob(filepath.Join(m.home, "guest", "agentd-*"))
	if err != nil || len(disks) == 0 {
		return fmt.Errorf("no disk of the agent's in %s: %w", m.home, orUnexpected(err))
	}
	for _, disk := range disks { // two, when this program carries another agent than msb
		info, err := os.Stat(disk)
		if err != nil {
			return err
		}
		f.add(seriesAgent, mib(info.Size()))
	}
	return nil
}
