package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// patience guards against hangs.
const patience = time.Minute

// fakeMachine is a machine without a guest.
type fakeMachine struct {
	mu         sync.Mutex
	containers []*fakeContainer
	fail       error // of Add
	over       chan struct{}
	once       sync.Once
	cfg        sandbox.Config
	netns      string
	oom        chan sandbox.ContainerEvent
}

func (m *fakeMachine) Add(_ context.Context, cfg sandbox.ContainerConfig) (container, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	c := &fakeContainer{m: m, cfg: cfg, procs: map[string]*fakeProcess{}, execs: map[string]sandbox.ContainerProcess{}, stats: sandbox.ContainerStats{MemoryCurrent: 5, CPU: map[string]uint64{"usage_usec": 6}}}
	m.containers = append(m.containers, c)
	return c, nil
}

func (m *fakeMachine) Watch(_ context.Context, tell func(sandbox.ContainerEvent)) error {
	for {
		select {
		case e := <-m.oom:
			tell(e)
		case <-m.over:
			return io.EOF
		}
	}
}

func (m *fakeMachine) Done() <-chan struct{} { return m.over }
func (m *fakeMachine) Err() error            { return nil }
func (m *fakeMachine) Close() error          { m.once.Do(func() { close(m.over) }); return nil }

// fakeProcess ends when a signal comes, or its standard input, of which it writes a copy.
type fakeProcess struct {
	io    sandbox.ContainerStdio
	ended chan struct{}
	once  sync.Once
	exit  sandbox.ContainerExit
}

func (p *fakeProcess) end(exit sandbox.ContainerExit) {
	p.once.Do(func() { p.exit = exit; p.exit.At = time.Now(); close(p.ended) })
}

type fakeContainer struct {
	m       *fakeMachine
	cfg     sandbox.ContainerConfig
	mu      sync.Mutex
	procs   map[string]*fakeProcess
	calls   []string
	fail    error // of Start and Exec
	deleted bool

	failing error // of Signal, Pause and Resume
	deaf    bool  // signals have no effect
	unruly  bool  // like it, and doesn't answer to more
	held    chan struct{}
	stats   sandbox.ContainerStats
	signals []string
	sizes   []agentclient.Size
	limits  []sandbox.ContainerResources
	execs   map[string]sandbox.ContainerProcess
	forgot  []string
}

var errUnruly = errors.New("the guest does not answer")

// unheard waits for the end of the machine, as a call does that the guest doesn't answer.
func (c *fakeContainer) unheard(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.m.over:
		return errUnruly
	}
}

// answers tells whether the guest does.
func (m *fakeMachine) answers() error {
	select {
	case <-m.over:
		return io.ErrUnexpectedEOF
	default:
		return nil
	}
}

func (c *fakeContainer) call(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, name)
}

func (c *fakeContainer) Start(ctx context.Context, io sandbox.ContainerStdio) error {
	return c.Exec(ctx, "", c.cfg.Process, io)
}

func (c *fakeContainer) Exec(_ context.Context, execID string, process sandbox.ContainerProcess, stdio sandbox.ContainerStdio) error {
	if c.fail != nil {
		return c.fail
	}
	p := &fakeProcess{io: stdio, ended: make(chan struct{})}
	c.mu.Lock()
	c.procs[execID] = p
	c.execs[execID] = process
	c.mu.Unlock()
	if stdio.Stdin != nil {
		go func() {
			_, _ = io.Copy(stdio.Stdout, stdio.Stdin)
			p.end(sandbox.ContainerExit{Code: 7})
		}()
	}
	return nil
}

func (c *fakeContainer) proc(execID string) *fakeProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.procs[execID]
}

func (c *fakeContainer) PID(string) uint32 { return 1 }
func (c *fakeContainer) Signal(_ context.Context, execID string, sig agentclient.Signal, all bool) error {
	c.mu.Lock()
	c.signals = append(c.signals, fmt.Sprintf("%s %d %v", execID, sig, all))
	c.mu.Unlock()
	if c.failing != nil || c.deaf || c.unruly {
		return c.failing
	}
	if execID == "" { // its execs are in its process namespace
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.procs) == 0 {
			return sandbox.ErrNoProcess
		}
		for _, p := range c.procs {
			p.end(sandbox.ContainerExit{Code: 128 + int(sig), Signal: sig})
		}
		return nil
	}
	c.proc(execID).end(sandbox.ContainerExit{Code: 128 + int(sig), Signal: sig})
	return nil
}

func (c *fakeContainer) Resize(_ context.Context, _ string, size agentclient.Size) error {
	c.sizes = append(c.sizes, size)
	c.call("resize")
	return nil
}
func (c *fakeContainer) Wait(ctx context.Context, execID string) (sandbox.ContainerExit, error) {
	p := c.proc(execID)
	select {
	case <-p.ended:
		return p.exit, nil
	case <-c.m.over:
		if c.held != nil {
			<-c.held
		}
		return sandbox.ContainerExit{}, io.ErrUnexpectedEOF
	case <-ctx.Done():
		return sandbox.ContainerExit{}, ctx.Err()
	}
}

func (c *fakeContainer) Forget(execID string) error {
	c.call("forget")
	c.forgot = append(c.forgot, execID)
	return c.m.answers()
}

func (c *fakeContainer) Pids(context.Context) ([]uint32, error) { return []uint32{1, 9}, nil }
func (c *fakeContainer) Stats(ctx context.Context) (sandbox.ContainerStats, error) {
	if c.unruly {
		return sandbox.ContainerStats{}, c.unheard(ctx)
	}
	return c.stats, nil
}

func (c *fakeContainer) Update(_ context.Context, limits sandbox.ContainerResources) error {
	c.limits = append(c.limits, limits)
	c.call("update")
	return nil
}
func (c *fakeContainer) Pause(ctx context.Context) error {
	if c.unruly {
		return c.unheard(ctx)
	}
	c.call("pause")
	return c.failing
}
func (c *fakeContainer) Resume(context.Context) error { c.call("resume"); return c.failing }
func (c *fakeContainer) Delete(context.Context) error {
	if c.unruly {
		return errUnruly
	}
	c.call("delete")
	c.deleted = true
	return c.m.answers()
}

// heard records events.
type heard struct {
	mu    sync.Mutex
	all   []any
	topic []string
	news  chan struct{}
	fail  error         // of the next one, which isn't recorded
	held  chan struct{} // until it is closed, if there is one, none is taken
}

func (h *heard) Publish(_ context.Context, topic string, event events.Event) error {
	if h.held != nil {
		<-h.held
	}
	h.mu.Lock()
	if err := h.fail; err != nil {
		h.fail = nil
		h.mu.Unlock()
		return err
	}
	h.all, h.topic = append(h.all, event), append(h.topic, topic)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
	return nil
}

func (h *heard) Close() error { return nil }

// topics waits for the first n events, in the order in which they came.
func (h *heard) topics(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		got := slices.Clone(h.topic)
		h.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-h.news:
		case <-deadline:
			t.Fatalf("got the events %v, want %d", got, n)
		}
	}
}

// lab is a service whose machine is a fake.
type lab struct {
	t       *testing.T
	s       *service
	m       *fakeMachine
	heard   *heard
	stop    shutdown.Service
	dir     string
	boots   int
	options *anypb.Any
	fail    error  // of the boot
	group   string // the control group of the containers; none unless the test is a process of its own
	rootfs  []*types.Mount
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{
		t: t, dir: t.TempDir(), heard: &heard{news: make(chan struct{}, 1)},
		m: &fakeMachine{over: make(chan struct{}), oom: make(chan sandbox.ContainerEvent)},
	}
	l.settings("")
	ctx, stop := shutdown.WithShutdown(namespaces.WithNamespace(context.Background(), "test"))
	l.stop = stop
	l.s = newService(ctx, l.heard, stop, func(_ context.Context, cfg sandbox.Config, netns string) (machine, string, error) {
		l.boots++
		l.m.cfg, l.m.netns = cfg, netns
		if l.fail != nil {
			return nil, "", l.fail
		}
		return l.m, "sb-1", nil
	})
	t.Cleanup(func() { stop.Shutdown(); <-stop.Done() })
	return l
}

// settings are the runtime's options, on top of a home and records of the test's own.
func (l *lab) settings(text string) {
	l.t.Helper()
	body := "home = \"" + filepath.Join(l.dir, "home") + "\"\nrecords = \"" + l.dir + "\"\n" + text
	a, err := anypb.New(&runtimeoptions.Options{ConfigBody: []byte(body)})
	if err != nil {
		l.t.Fatal(err)
	}
	a.TypeUrl = "runtimeoptions.v1.Options" // as containerd writes it
	l.options = a
}

func (l *lab) bundle(id string) string { return filepath.Join(l.dir, id) }

// create makes a container of a spec, without a root to mount.
func (l *lab) create(id string, spec *specs.Spec, s streams) error {
	l.t.Helper()
	if spec.Linux != nil {
		spec.Linux.CgroupsPath = l.group // "": this process stays in its own
	}
	b, err := json.Marshal(spec)
	if err == nil {
		err = os.MkdirAll(l.bundle(id), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(l.bundle(id), "config.json"), b, 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = l.s.Create(l.t.Context(), &taskapi.CreateTaskRequest{
		ID: id, Bundle: l.bundle(id), Options: l.options, Rootfs: l.rootfs, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, Terminal: s.terminal,
	})
	return err
}

// running makes and starts a container.
func (l *lab) running(id string, spec *specs.Spec, s streams) *fakeContainer {
	l.t.Helper()
	if err := l.create(id, spec, s); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.s.Start(l.t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
		l.t.Fatal(err)
	}
	if len(l.m.containers) == 0 {
		return nil
	}
	return l.m.containers[len(l.m.containers)-1]
}

func (l *lab) wait(id, execID string) uint32 {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	r, err := l.s.Wait(ctx, &taskapi.WaitRequest{ID: id, ExecID: execID})
	if err != nil {
		l.t.Fatal(err)
	}
	return r.ExitStatus
}
