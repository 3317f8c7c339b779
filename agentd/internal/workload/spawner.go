//go:build linux

package workload

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// Command says what to start. Env is complete but for PATH, HOME and TERM,
// which are added where missing.
type Command struct {
	Argv    []string
	Env     []string
	Dir     string
	MakeDir bool // where it is missing
	User    string
	TTY     bool
	Size    Size
	Rlimits []Rlimit
	Stdin   bool
	// Program is the file to run, whatever the root has by the name of Argv[0]; nil looks that up.
	Program *os.File
	// Stage is the agent's own program, nil for none. The process becomes it first, and then what Argv names, if that is not
	// on the root's own disk. Between fork and exec Go's scheduler lacks a processor, and the collection of garbage waits
	// for it: an agent that carries the messages of the file system which has the program would wait for itself.
	Stage *os.File
	// Cgroup may be nil.
	Cgroup *Cgroup

	pts *os.File // the mount whose terminals it gets; nil for /dev/pts
}

// ErrRequest is a command that can't be started as it stands: no such user, a
// working directory that is relative, an impossible limit.
var ErrRequest = errors.New("the command can't be started")

// Spawner starts processes from one thread.
type Spawner struct {
	thread *Thread
	reaper *Reaper
}

// NewSpawner starts processes on t, in t's root, and has r reap them.
func NewSpawner(t *Thread, r *Reaper) *Spawner { return &Spawner{thread: t, reaper: r} }

// Process is a started process with our ends of its streams.
type Process struct {
	*child
	// Stdin is nil when there is none. With a terminal, Stdin and Stdout are
	// the same file and Stderr is nil.
	Stdin, Stdout, Stderr *os.File
}

// Start starts c. Its errors wrap ErrRequest or are a *StartError; any other
// is the machine's (out of processes, out of memory).
func (s *Spawner) Start(c Command) (*Process, error) {
	var p *Process
	var err error
	s.thread.Do(func() { p, err = s.start(c) })
	return p, err
}

func (s *Spawner) start(c Command) (*Process, error) {
	if err := checkStrings(c); err != nil {
		return nil, err
	}
	if err := checkRlimits(c.Rlimits); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	id, err := ownAccounts.lookup(c.User)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	dir, err := workingDir(c.Dir, c.MakeDir)
	if err != nil {
		return nil, err
	}
	env := completeEnv(c.Env, id, c.TTY)
	program, err := c.find(envValue(env, "PATH"), dir)
	if err != nil {
		return nil, err
	}
	io, err := openStdio(c, id)
	if err != nil {
		return nil, err
	}
	defer io.closeChildEnds()
	child, err := s.fork(c.staged(program), c, dir, env, id, io)
	if err != nil {
		io.closeOurEnds()
		return nil, execError(program, err)
	}
	return &Process{child: child, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr}, nil
}

// find is the path of the program. That of an open file is looked up by the kernel before it closes the file, and by the
// process itself, which may always see its own.
func (c Command) find(pathVar, dir string) (string, error) {
	if c.Program != nil {
		return fdPath(c.Program), nil
	}
	return lookPath(c.Argv[0], pathVar, dir)
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func (s *Spawner) fork(program string, c Command, dir string, env []string, id identity, io *stdio) (*child, error) {
	// Entered with root's rights, on this thread alone: the process inherits it, as under sudo, though its
	// user might not enter it. An image's own directory (/root) must not keep other users from running.
	if err := syscall.Chdir(dir); err != nil {
		return nil, dirError(dir, err)
	}
	defer func() { _ = syscall.Chdir("/") }() // keeps no file system busy
	attr := &syscall.ProcAttr{
		Env:   env,
		Files: io.child[:],
		Sys: &syscall.SysProcAttr{
			Setsid:  true,
			Setctty: c.TTY,
			Ptrace:  len(c.Rlimits) > 0,
		},
	}
	if os.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}
	} else if int(id.uid) != os.Geteuid() && c.User != "" {
		return nil, syscall.EPERM
	}
	if c.Cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(c.Cgroup.dir.Fd())
	}
	return s.reaper.start(func() (int, error) {
		pid, err := syscall.ForkExec(program, c.Argv, attr)
		if err != nil || !attr.Sys.Ptrace {
			return pid, err
		}
		if err := limitAndRelease(pid, c.Rlimits); err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
			return 0, fmt.Errorf("%w: %w", ErrRequest, err)
		}
		return pid, nil
	})
}

// checkStrings refuses what execve can't carry: a NUL would cut a string short
// there, so that another program or variable than the one judged is used.
func checkStrings(c Command) error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("%w: no program named", ErrRequest)
	}
	for i, s := range append([]string{c.Dir, c.User}, c.Argv...) {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: a NUL byte in %s", ErrRequest, []string{"the working directory", "the user", "an argument"}[min(i, 2)])
		}
	}
	for i, e := range c.Env { // never quoted: a value may be private
		if strings.IndexByte(e, '=') <= 0 || strings.IndexByte(e, 0) >= 0 {
			return fmt.Errorf("%w: environment entry %d is not KEY=value without NUL", ErrRequest, i+1)
		}
	}
	return nil
}

// workingDir looks for the directory and makes it where that is wanted. What is missing is an error of the codes that
// container tools give it: 127 for none of that name, 126 for what is no directory.
func workingDir(dir string, makeIt bool) (string, error) {
	if dir == "" {
		return "/", nil
	}
	if !path.IsAbs(dir) {
		return "", fmt.Errorf("%w: working directory %q is not absolute", ErrRequest, dir)
	}
	dir = path.Clean(dir)
	if makeIt {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // what mkdir in the guest would give
			return "", dirError(dir, err)
		}
	}
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = syscall.ENOTDIR
	}
	return dir, dirError(dir, err)
}

// dirError tells a working directory that can't be used from a machine that is out of resources; nil stays nil.
func dirError(dir string, err error) error {
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		return &StartError{NotFound: true, Message: "working directory " + dir + ": no such directory; make it first"}
	case errors.As(err, &errno) && errno != syscall.ENOSPC && errno != syscall.EIO:
		return &StartError{Message: "working directory " + dir + ": " + errno.Error()}
	}
	return fmt.Errorf("working directory: %w", err)
}
