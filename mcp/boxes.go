package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// defaultName is the sandbox that is made by itself.
const defaultName = "default"

// files are those of a guest; *sandbox.Files.
type files interface {
	Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, name string, follow bool) (agentclient.FileInfo, error)
	ReadDir(ctx context.Context, dir string) ([]agentclient.FileInfo, error)
	Mkdir(ctx context.Context, dir string, o agentclient.MkdirOptions) error
	WriteFile(ctx context.Context, name string, r io.Reader, o agentclient.WriteOptions) (agentclient.FileInfo, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Rename(ctx context.Context, from, to string) error
}

var _ files = (*sandbox.Files)(nil)

// machine is a session with a running sandbox.
type machine interface {
	Exec(ctx context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error)
	Files() files
	// Copy copies a tree of the guest's files to a name in a directory of the guest.
	Copy(ctx context.Context, from, dir, name string) (agentclient.TreeReport, error)
	StartJob(ctx context.Context, name string, o sandbox.ExecOptions) (string, error)
	Denied() audit.DenialSummary
	Stats(ctx context.Context) (agentclient.Stats, error)
	Close() error
}

// real is a machine that is one.
type real struct{ *sandbox.Sandbox }

func (r real) Files() files { return r.Sandbox.Files() }

func (r real) Copy(ctx context.Context, from, dir, name string) (agentclient.TreeReport, error) {
	in, err := r.Sandbox.Files().Pack(ctx, from, name, false)
	if err != nil {
		return agentclient.TreeReport{}, err
	}
	report, err := r.Sandbox.Files().Unpack(ctx, dir, in, nil)
	_ = in.Close() // it was only read
	return report, err
}

func (r real) StartJob(ctx context.Context, name string, o sandbox.ExecOptions) (string, error) {
	j, err := r.Sandbox.StartJob(ctx, name, o)
	if err != nil {
		return "", err
	}
	return j.Name(), nil
}

// runner makes machines run; tests put one of their own here.
type runner interface {
	// connect opens a session with a named sandbox that runs.
	connect(ctx context.Context, name string) (machine, error)
	// start starts a named sandbox that exists.
	start(ctx context.Context, name string) (machine, error)
	// run starts one without a name.
	run(ctx context.Context, cfg sandbox.Config) (machine, error)
}

type realRunner struct {
	home    *sandbox.Home
	program string
}

func wrap(sb *sandbox.Sandbox, err error) (machine, error) {
	if err != nil {
		return nil, err
	}
	return real{sb}, nil
}

func (r realRunner) connect(ctx context.Context, name string) (machine, error) {
	return wrap(r.home.Connect(ctx, name))
}

func (r realRunner) start(ctx context.Context, name string) (machine, error) {
	return wrap(sandbox.StartNamed(ctx, name, sandbox.StartOptions{Home: r.home.Dir(), Program: r.program}))
}

func (r realRunner) run(ctx context.Context, cfg sandbox.Config) (machine, error) {
	return wrap(sandbox.Start(ctx, cfg))
}

// mine are the sandboxes that msb mcp made, those of other floors included.
func (s *server) mine() ([]sandbox.Status, error) {
	all, err := s.opts.Home.List()
	if err != nil {
		return nil, err
	}
	var mine []sandbox.Status
	for i := range all {
		if strings.HasPrefix(all[i].Label, labelPrefix) {
			mine = append(mine, all[i])
		}
	}
	return mine, nil
}

// own is the sandbox of that name, if this server may use it; "" is the default one. remove tells that it is only to be
// stopped or removed, which may be done with one of another floor too.
func (s *server) own(name string, remove bool) (*sandbox.Status, error) {
	var st *sandbox.Status
	var err error
	if name == "" {
		name, st = s.byDefault()
	}
	if err := sandbox.CheckName(name); err != nil {
		return nil, err
	}
	if st == nil {
		st, err = s.opts.Home.Inspect(name)
	}
	if errors.Is(err, sandbox.ErrNoSandbox) || err == nil && !strings.HasPrefix(st.Label, labelPrefix) {
		return nil, s.noSuch(name)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case remove:
	case st.Label != s.label:
		return nil, fmt.Errorf("sandbox %s was made under another operator's policy; remove it with sandbox_stop (remove: true) and create it again, or use another name", name)
	case st.CPUs > s.opts.CPUs || st.Memory > s.opts.Memory || st.Disk > s.opts.Disk:
		return nil, fmt.Errorf("sandbox %s is larger than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", name)
	}
	return st, nil
}

// noSuch is ErrNoSandbox with the names there are.
func (s *server) noSuch(name string) error {
	var names []string
	mine, err := s.mine()
	if err != nil {
		return err
	}
	for i := range mine {
		names = append(names, mine[i].Name)
	}
	there := "there is none yet"
	if len(names) > 0 {
		there = "there are: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %s; %s; sandbox_create makes one", sandbox.ErrNoSandbox, name, there)
}

// defaultName is "default", or another where somebody else has a sandbox of that name.
func (s *server) defaultName() string {
	name, _ := s.byDefault()
	return name
}

// byDefault is defaultName with the sandbox of that name, nil if it wasn't looked at.
func (s *server) byDefault() (string, *sandbox.Status) {
	st, err := s.opts.Home.Inspect(defaultName)
	switch {
	case err != nil:
		return defaultName, nil
	case st.Label != s.label:
		return defaultName + "-" + s.label[len(labelPrefix):len(labelPrefix)+6], nil
	}
	return defaultName, st
}

// errTooMany says that the bound on sandboxes is reached.
var errTooMany = errors.New("too many sandboxes")

func (s *server) tooMany() error {
	return fmt.Errorf("%w: at most %d at once, those of sandbox_run included; remove one with sandbox_stop (remove: true)", errTooMany, s.opts.Sandboxes)
}

// reserve takes a place for a sandbox that is being made or run without a name.
func (s *server) reserve() (free func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine, err := s.mine()
	if err != nil {
		return nil, err
	}
	if len(mine)+s.reserved >= s.opts.Sandboxes {
		return nil, s.tooMany()
	}
	s.reserved++
	return func() { s.mu.Lock(); s.reserved--; s.mu.Unlock() }, nil
}

// create makes a named sandbox, and does not start it.
func (s *server) create(ctx context.Context, name string, a *machineArgs) error {
	cfg, err := s.opts.config(a)
	if err != nil {
		return err
	}
	cfg.Name, cfg.Label, cfg.Disk, cfg.IdleStop = name, s.label, s.opts.Disk, s.opts.IdleStop
	free, err := s.reserve()
	if err != nil {
		return err
	}
	defer free()
	if err := sandbox.Create(ctx, cfg); err != nil {
		return err
	}
	// Another server on this state directory may have made one at the same time.
	if mine, err := s.mine(); err != nil || len(mine) > s.opts.Sandboxes {
		return errors.Join(err, s.tooMany(), s.opts.Home.Remove(context.WithoutCancel(ctx), name))
	}
	return nil
}

// createDefault makes the default sandbox. Clients call several tools at once: one of the calls makes it, and the others
// take no place meanwhile.
func (s *server) createDefault(ctx context.Context, name string) error {
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := s.own(name, false); !errors.Is(err, sandbox.ErrNoSandbox) {
		return err
	}
	err := s.create(ctx, name, &machineArgs{})
	if errors.Is(err, sandbox.ErrExists) { // another server made it
		err = nil
	}
	return err
}

// startingPoll is how often a sandbox that another process starts is looked at.
const startingPoll = 50 * time.Millisecond

// use opens a session with a sandbox of this server. One that is stopped is started, and the default one is made.
func (s *server) use(ctx context.Context, name string) (machine, string, error) {
	st, err := s.own(name, false)
	if errors.Is(err, sandbox.ErrNoSandbox) && (name == "" || name == s.defaultName()) {
		name = s.defaultName()
		if err := s.createDefault(ctx, name); err != nil {
			return nil, "", err
		}
		st, err = s.own(name, false)
	}
	if err != nil {
		return nil, "", err
	}
	for {
		m, err := s.runner.connect(ctx, st.Name)
		if errors.Is(err, sandbox.ErrNotRunning) {
			m, err = s.runner.start(ctx, st.Name)
		}
		if !errors.Is(err, sandbox.ErrRunning) {
			return m, st.Name, err
		}
		select { // another call or server starts it
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-time.After(startingPoll):
		}
	}
}
