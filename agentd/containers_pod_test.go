//go:build linux && !(vmtest && amd64)

package agentd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// inMachine marks the child of inNamespaces.
const inMachine = "MSB_TEST_IN_MACHINE"

// onMachine runs a test in namespaces, with an agent that makes containers on this machine's kernel.
func onMachine(t *testing.T, opts agentclient.Options, test func(t *testing.T, p *pod)) {
	t.Helper()
	inNamespaces(t, func() { test(t, newPod(t, opts)) })
}

// inNamespaces runs a test again in a process whose mounts, names, network and children are its own.
func inNamespaces(t *testing.T, test func()) {
	t.Helper()
	if os.Getenv(inMachine) != "" {
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), system.LoopbackUp())
		test()
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces here")
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Fatal("there is no busybox: run scripts/setup --test")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), inMachine+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("%s", out)
	}
}

// pod is an agent with containers, and a host that serves directories to them.
type pod struct {
	*session
	host    *agentclient.Client // by way of Serve, as clients of a sandbox have it
	root    string
	groups  string
	mu      sync.Mutex
	serving map[uint32]agentclient.HostDirectory
	last    uint32
}

func newPod(t *testing.T, opts agentclient.Options) *pod {
	t.Helper()
	p := &pod{root: t.TempDir(), serving: map[uint32]agentclient.HostDirectory{}}
	must(t, os.MkdirAll("/run/cgroups", 0o755))
	if err := unix.Mount("none", "/run/cgroups", "cgroup2", 0, ""); err != nil {
		t.Skip("no control groups here: ", err)
	}
	top := filepath.Join("/run/cgroups", fmt.Sprintf("msb-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	must(t, os.Mkdir(top, 0o755))
	p.groups = filepath.Join(top, "msb")
	t.Cleanup(func() { must(t, os.Remove(p.groups), os.Remove(top)) })
	cgroups, err := workload.NewCgroups(top, workload.Limits{})
	must(t, err)
	fillRoot(t, p.root)
	p.session = dial(t, opts, func(s *server) {
		s.containers = &containerServer{
			cgroups: cgroups, reaper: workload.NewReaper(false), shutdown: s.shutdown, log: slog.New(slog.DiscardHandler),
			mounts: &hostMounts{carries: &s.carries, log: slog.New(slog.DiscardHandler), all: map[uint32]*hostMount{}},
			all:    map[string]*container{}, busy: map[string]chan struct{}{}, watchers: map[chan *agentpb.ContainerEvent]struct{}{},
		}
	})
	t.Cleanup(p.server.containers.reaper.Close)
	p.serve(t)
	return p
}

// fillRoot makes a root of busybox.
func fillRoot(t *testing.T, root string) {
	t.Helper()
	box, err := exec.LookPath("busybox")
	must(t, err)
	program, err := os.ReadFile(box)
	must(t, err, os.Chmod(root, 0o755), os.Mkdir(filepath.Join(root, "bin"), 0o755), os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755))
	for _, name := range strings.Fields("sh cat chmod chown dd env grep head hostname id kill ln ls mkdir mknod mount pwd readlink rm sed sleep sort stat stty test touch tr true tty wc") {
		must(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
	}
}

// serve attaches a client by way of Serve. What the host serves are mounts, in place of FUSE's.
func (p *pod) serve(t *testing.T) {
	t.Helper()
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background()) // until the containers are deleted
	served := make(chan error, 1)
	go func() {
		served <- agentclient.Serve(ctx, lis, p.Client, agentclient.Services{Containers: agentclient.NewContainerDirectories(p.offer)})
	}()
	conn, err := net.Dial("unix", lis.Addr().String())
	must(t, err)
	p.host, err = agentclient.Attach(conn)
	must(t, err)
	t.Cleanup(func() {
		for _, id := range p.ids() {
			must(t, p.host.Containers().Delete(context.Background(), id))
		}
		_ = p.host.Close()
		cancel()
		<-served
		if n := len(p.serving); n > 0 {
			t.Errorf("%d directories are served still", n)
		}
	})
}

func (p *pod) ids() (ids []string) {
	s := p.server.containers
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.all {
		ids = append(ids, id)
	}
	return ids
}

func (p *pod) offer(d agentclient.HostDirectory) (uint32, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	number, m := p.last, p.server.containers.mounts
	place := system.HostPlace(number)
	err := os.MkdirAll(filepath.Dir(place), 0o700)
	if d.File {
		err = os.WriteFile(place, nil, 0o600)
	} else if err == nil {
		err = os.Mkdir(place, 0o700)
	}
	if err == nil {
		err = unix.Mount(d.Path, place, "", unix.MS_BIND, "")
	}
	if err != nil {
		return 0, nil, err
	}
	p.serving[number] = d
	m.mu.Lock()
	m.all[number] = &hostMount{file: d.File, users: 1} // the last one would end FUSE's connection
	m.mu.Unlock()
	return number, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.serving, number)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.all[number].users != 1 {
			panic(fmt.Sprintf("%d mounts of %s are held still", m.all[number].users-1, d.Path))
		}
		delete(m.all, number)
		_ = unix.Unmount(place, unix.MNT_DETACH)
	}, nil
}

// box is a container that runs a shell line with all capabilities of root in a common container.
func (p *pod) box(id, line string) agentclient.ContainerConfig {
	c := strings.Fields("CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID CAP_MKNOD CAP_NET_BIND_SERVICE")
	return agentclient.ContainerConfig{
		ID: id, Root: p.root, Mounts: []agentclient.ContainerMount{{Type: "proc", Target: "/proc"}},
		Process: agentclient.ContainerProcess{
			Args: []string{"sh", "-c", "exec 2>&1; " + line}, Env: []string{"PATH=/bin"}, Capabilities: agentclient.Capabilities{Bounding: c, Effective: c, Permitted: c},
		},
	}
}

// add makes a container.
func (p *pod) add(cfg agentclient.ContainerConfig) error {
	var files []bool
	for _, m := range cfg.Mounts {
		st, err := os.Stat(m.Source)
		files = append(files, err == nil && !st.IsDir())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := p.host.Containers().Create(ctx, &cfg, files)
	return err
}

// run makes and runs a container to its end, and returns what it wrote.
func (p *pod) run(t *testing.T, cfg agentclient.ContainerConfig) string {
	t.Helper()
	must(t, p.add(cfg))
	out := p.process(t, agentclient.ContainerExec{ID: cfg.ID}).out
	must(t, p.host.Containers().Delete(t.Context(), cfg.ID))
	return out
}

// process runs a process of a container to its end.
func (p *pod) process(t *testing.T, x agentclient.ContainerExec) result {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := p.host.Exec(ctx, agentclient.ExecOptions{Container: &x, Stdout: &out, Stderr: &out})
	must(t, err)
	return result{ExitStatus: st, out: out.String()}
}

// sh runs a shell line in a container that runs.
func (p *pod) sh(t *testing.T, id, line string) string {
	t.Helper()
	c := p.box("", line).Process
	return p.process(t, agentclient.ContainerExec{ID: id, ExecID: "sh", Process: &c}).out
}

// held is a process that runs until it is told to end.
type held struct {
	end  func() // cancels its call
	in   *io.PipeWriter
	out  *io.PipeReader
	done chan heldEnd
}

type heldEnd struct {
	st  agentclient.ExitStatus
	err error
}

// hold starts a process and returns once it has written a line.
func (p *pod) hold(t *testing.T, x agentclient.ContainerExec) *held {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	h := &held{end: cancel, in: toIn, out: fromOut, done: make(chan heldEnd, 1)}
	t.Cleanup(func() { _ = toIn.Close(); _ = fromOut.Close() })
	go func() {
		st, err := p.host.Exec(ctx, agentclient.ExecOptions{Container: &x, Stdin: in, Stdout: out, Stderr: out})
		_ = out.Close()
		_ = in.Close()
		h.done <- heldEnd{st, err}
	}()
	h.line(t)
	return h
}

// line reads a line.
func (h *held) line(t *testing.T) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(h.out, b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

// until waits for a state that another process brings about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: ", what)
		}
	}
}
