package mcp

import (
	"context"
	"io"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// files is what this package uses of *sandbox.Files.
type files interface {
	Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, name string, follow bool) (agentclient.FileInfo, error)
	ReadDir(ctx context.Context, dir string) ([]agentclient.FileInfo, error)
	Mkdir(ctx context.Context, dir string, o agentclient.MkdirOptions) error
	WriteFile(ctx context.Context, name string, r io.Reader, o agentclient.WriteOptions) (agentclient.FileInfo, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Rename(ctx context.Context, from, to string) error
	Symlink(ctx context.Context, target, name string) error
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

// real is the machine of a real sandbox; tests have others.
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

// runner starts sandboxes and connects to them; tests have one of their own.
type runner interface {
	// connect opens a session with a running named sandbox, or returns one that is open.
	connect(ctx context.Context, st *sandbox.Status) (machine, error)
	// start starts an existing named sandbox.
	start(ctx context.Context, st *sandbox.Status) (machine, error)
	// stop ends a sandbox that start has started.
	stop(ctx context.Context, st *sandbox.Status) error
	// run starts a sandbox without a name.
	run(ctx context.Context, cfg sandbox.Config) (machine, error)
}

type realRunner struct {
	home    *sandbox.Home
	program string
	kept    *sessions
}

func wrap(sb *sandbox.Sandbox, err error) (machine, error) {
	if err != nil {
		return nil, err
	}
	return real{sb}, nil
}

func (r realRunner) connect(ctx context.Context, st *sandbox.Status) (machine, error) {
	if st.Started == nil {
		return wrap(r.home.Only(st.Created).Connect(ctx, st.Name))
	}
	s := r.kept.take(st.Name, *st.Started)
	if s == nil {
		sb, err := r.home.Only(st.Created).Connect(ctx, st.Name)
		if err != nil {
			return nil, err
		}
		s = r.kept.add(st.Name, *st.Started, real{sb})
	}
	return r.kept.lend(st.Name, s), nil
}

func (r realRunner) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	return wrap(sandbox.StartNamed(ctx, st.Name, sandbox.StartOptions{Home: r.home.Dir(), Program: r.program, Created: st.Created}))
}

func (r realRunner) stop(ctx context.Context, st *sandbox.Status) error {
	return r.home.Only(st.Created).Stop(ctx, st.Name)
}

func (r realRunner) run(ctx context.Context, cfg sandbox.Config) (machine, error) {
	return wrap(sandbox.Start(ctx, cfg))
}
