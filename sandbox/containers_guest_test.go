package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/policies"
)

// containerGuest is the guest's part of containers: a process echoes its input and ends with it, or as ends says.
type containerGuest struct {
	agentpb.UnimplementedAgentServer
	mu      sync.Mutex
	created []*agentpb.CreateContainerRequest
	started []*agentpb.ContainerStart
	calls   []string
	ends    *agentpb.Exit // in place of a start
	gone    bool
	hang    bool // a start's answer doesn't come
}

// containerCalls are its calls for containers.
type containerCalls struct {
	agentpb.UnimplementedContainersServer
	*containerGuest
}

var _ agentpb.ContainersServer = containerCalls{}

func (g *containerGuest) did(format string, a ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf(format, a...))
}

func (g containerCalls) Create(_ context.Context, r *agentpb.CreateContainerRequest) (*agentpb.CreateContainerResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.created = append(g.created, r)
	return &agentpb.CreateContainerResponse{Pid: 7}, nil
}

func (g containerCalls) Signal(_ context.Context, r *agentpb.SignalContainerRequest) (*agentpb.SignalContainerResponse, error) {
	g.did("signal %s %q %d %t", r.GetContainer(), r.GetExecId(), r.GetSignal(), r.GetAll())
	return &agentpb.SignalContainerResponse{Gone: g.gone}, nil
}

func (g containerCalls) Delete(_ context.Context, r *agentpb.DeleteContainerRequest) (*agentpb.DeleteContainerResponse, error) {
	g.did("delete %s", r.GetContainer())
	return &agentpb.DeleteContainerResponse{}, nil
}

func (g containerCalls) Pause(_ context.Context, r *agentpb.PauseContainerRequest) (*agentpb.PauseContainerResponse, error) {
	g.did("pause %s %t", r.GetContainer(), r.GetResume())
	return &agentpb.PauseContainerResponse{}, nil
}

func (g containerCalls) Update(_ context.Context, r *agentpb.UpdateContainerRequest) (*agentpb.UpdateContainerResponse, error) {
	g.did("update %s %d", r.GetContainer(), r.GetLimits().GetMemoryBytes())
	return &agentpb.UpdateContainerResponse{}, nil
}

func (g containerCalls) Stats(_ context.Context, r *agentpb.ContainerStatsRequest) (*agentpb.ContainerStatsResponse, error) {
	g.did("stats %s", r.GetContainer())
	return &agentpb.ContainerStatsResponse{MemoryCurrent: 5, Pids: []uint32{3, 4}}, nil
}

// Exec implements agentpb.AgentServer.
func (g *containerGuest) Exec(s agentpb.Agent_ExecServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart().GetContainer()
	g.mu.Lock()
	g.started = append(g.started, start)
	ends, hang := g.ends, g.hang
	g.mu.Unlock()
	if hang {
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	if ends.GetStartError() != agentpb.StartError_START_ERROR_UNSPECIFIED {
		return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: ends}})
	}
	if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{Pid: 40 + uint32(len(start.GetExecId())), StdinWindow: agentpb.StdinWindowBytes}}}); err != nil {
		return err
	}
	for first.GetStart().GetStdin() {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) || r.GetStdinEof() != nil {
			break
		}
		if err != nil {
			return err
		}
		if size := r.GetResize(); size != nil {
			g.did("resize %d %d", size.GetRows(), size.GetCols())
		}
		if b := r.GetStdin(); len(b) > 0 {
			if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: b}}); err != nil {
				return err
			}
		}
	}
	if ends == nil {
		ends = &agentpb.Exit{Code: 3}
	}
	return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: ends}})
}

// containersOf are those of a sandbox whose guest is g.
func containersOf(t *testing.T, g *containerGuest, placeholders map[string]string) *Containers {
	t.Helper()
	host, guest := net.Pipe()
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	agentpb.RegisterAgentServer(srv, g)
	agentpb.RegisterContainersServer(srv, containerCalls{containerGuest: g})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(handoff.Of(guest)) }()
	client, err := agentclient.Attach(host)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(); srv.Stop(); <-served })
	s := &Sandbox{client: client, home: &Home{dir: "/nosuch/msb"}, confined: &Config{Policy: policies.Default()}}
	s.info.Placeholders = placeholders
	return s.Containers()
}

// TestI8_EveryProcessGetsPlaceholders: the container's first one and those of Exec, in place of what the caller has under a secret's
// name. The twin is a sandbox without secrets, whose guest gets what the caller gives.
func TestI8_EveryProcessGetsPlaceholders(t *testing.T) {
	t.Parallel()
	for _, secrets := range []map[string]string{{"TOKEN": "msb_placeholder"}, nil} {
		g := &containerGuest{}
		env := []string{"A=b", "TOKEN=the value itself"}
		c, err := containersOf(t, g, secrets).Add(t.Context(), ContainerConfig{ID: "a", Root: t.TempDir(), Process: ContainerProcess{Args: []string{"true"}, Env: env}})
		must(t, err)
		must(t, c.Exec(t.Context(), "x", ContainerProcess{Args: []string{"true"}, Env: env}, ContainerStdio{}))
		want := env
		if secrets != nil {
			want = []string{"A=b", "TOKEN=msb_placeholder"}
		}
		if got := g.created[0].GetProcess().GetEnv(); !slices.Equal(got, want) {
			t.Errorf("the first process: %q, want %q", got, want)
		}
		if got := g.started[0].GetProcess().GetEnv(); !slices.Equal(got, want) {
			t.Errorf("a process of Exec: %q, want %q", got, want)
		}
		if env[1] != "TOKEN=the value itself" {
			t.Error("the caller's environment was changed")
		}
	}
}

// TestContainersFollowTheirProcesses from start to end: what may come when, what comes back, what is free again.
func TestContainersFollowTheirProcesses(t *testing.T) {
	t.Parallel()
	g := &containerGuest{}
	ctx := t.Context()
	c, err := containersOf(t, g, nil).Add(ctx, ContainerConfig{ID: "a", Root: t.TempDir(), Process: ContainerProcess{Args: []string{"sh"}}})
	must(t, err)
	if c.PID("") != 7 || c.PID("x") != 0 {
		t.Errorf("pids %d, %d", c.PID(""), c.PID("x"))
	}
	in, toIn := io.Pipe()
	var out bytes.Buffer
	must(t, c.Start(ctx, ContainerStdio{Stdin: in, Stdout: &out}))
	if err := c.Start(ctx, ContainerStdio{}); !errors.Is(err, ErrContainer) {
		t.Errorf("a second start: %v", err)
	}
	wait, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Wait(wait, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up: %v", err)
	}
	must(t, c.Resize(ctx, "", agentclient.Size{Rows: 5, Cols: 6}))
	_, err = toIn.Write([]byte("hello"))
	must(t, errors.Join(err, toIn.Close()))
	if exit, err := c.Wait(ctx, ""); err != nil || exit.Code != 3 || exit.OOMKilled || out.String() != "hello" || exit.At.IsZero() {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
	g.ends = &agentpb.Exit{Code: 137, Signal: 9, OomKilled: true}
	must(t, c.Exec(ctx, "xx", ContainerProcess{Args: []string{"sh"}}, ContainerStdio{}))
	if exit, err := c.Wait(ctx, "xx"); err != nil || exit.Code != 137 || exit.Signal != 9 || !exit.OOMKilled || c.PID("xx") != 42 {
		t.Errorf("%+v, %v, pid %d", exit, err, c.PID("xx"))
	}
	for _, id := range []string{"xx", ""} {
		if err := c.Exec(ctx, id, ContainerProcess{Args: []string{"sh"}}, ContainerStdio{}); !errors.Is(err, ErrContainer) {
			t.Errorf("a second process %q: %v", id, err)
		}
	}
	must(t, c.Forget("xx"))
	if err := c.Forget(""); !errors.Is(err, ErrNoProcess) {
		t.Errorf("the first process is forgotten: %v", err)
	}
	g.ends = &agentpb.Exit{Code: 127, StartError: agentpb.StartError_START_ERROR_NOT_FOUND, Message: "sh: not found"}
	for range 2 { // its id is free at once
		var se *ContainerStartError
		if err := c.Exec(ctx, "xx", ContainerProcess{Args: []string{"sh"}}, ContainerStdio{}); !errors.As(err, &se) || se.Code != 127 || se.Message != "sh: not found" {
			t.Errorf("a program that is missing: %v", err)
		}
	}
	g.mu.Lock()
	g.ends, g.hang = nil, true
	g.mu.Unlock()
	late, giveUp := context.WithCancel(ctx)
	giveUp()
	if err := c.Exec(late, "xx", ContainerProcess{Args: []string{"sh"}}, ContainerStdio{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that is given up: %v", err)
	}
	g.mu.Lock()
	g.hang = false
	g.mu.Unlock()
	held, end := io.Pipe()
	must(t, c.Exec(ctx, "y", ContainerProcess{Args: []string{"sh"}}, ContainerStdio{Stdin: held}))
	if err := c.Forget("y"); !errors.Is(err, ErrContainer) {
		t.Errorf("a process that runs is forgotten: %v", err)
	}
	must(t, c.CloseStdin(ctx, "y"))
	if exit, err := c.Wait(ctx, "y"); err != nil || exit.Code != 3 {
		t.Errorf("after the end of its input: %+v, %v", exit, err)
	}
	_ = end.Close()
	if err := c.Resize(ctx, "y", agentclient.Size{}); !errors.Is(err, ErrNoProcess) {
		t.Errorf("the terminal of one that has ended: %v", err)
	}
	for _, err := range []error{c.Signal(ctx, "none", agentclient.SIGTERM, false), c.CloseStdin(ctx, "none"), c.Resize(ctx, "none", agentclient.Size{}), c.Forget("none")} {
		if !errors.Is(err, ErrNoProcess) {
			t.Errorf("a process that never was: %v", err)
		}
	}
}

// TestContainersPassCallsOn to the guest, with their id; one that is deleted is deleted once.
func TestContainersPassCallsOn(t *testing.T) {
	t.Parallel()
	g := &containerGuest{}
	ctx := t.Context()
	all := containersOf(t, g, nil)
	c, err := all.Add(ctx, ContainerConfig{ID: "a", Root: t.TempDir()})
	must(t, err)
	must(t, errors.Join(c.Signal(ctx, "", agentclient.SIGTERM, true), c.Pause(ctx), c.Resume(ctx), c.Update(ctx, ContainerResources{MemoryBytes: 9})))
	st, err := c.Stats(ctx)
	pids, errPids := c.Pids(ctx)
	if err != nil || errPids != nil || st.MemoryCurrent != 5 || !slices.Equal(pids, []uint32{3, 4}) {
		t.Errorf("%+v, %v, %v, %v", st, pids, err, errPids)
	}
	must(t, c.Signal(ctx, "", agentclient.SIGKILL, false)) // before its start
	if exit, err := c.Wait(ctx, ""); err != nil || exit.Code != 137 || exit.Signal != agentclient.SIGKILL {
		t.Errorf("%+v, %v", exit, err)
	}
	if err := c.Start(ctx, ContainerStdio{}); !errors.Is(err, ErrContainer) || len(g.started) > 0 {
		t.Errorf("one that was killed starts: %v", err)
	}
	g.gone = true
	if err := c.Signal(ctx, "", agentclient.SIGKILL, false); !errors.Is(err, ErrNoProcess) {
		t.Errorf("one that has gone is signalled: %v", err)
	}
	must(t, errors.Join(c.Delete(ctx), c.Delete(ctx)))
	if want := []string{`signal a "" 15 true`, "pause a false", "pause a true", "update a 9", "stats a", "stats a", `signal a "" 9 false`, `signal a "" 9 false`, "delete a"}; !slices.Equal(g.calls, want) {
		t.Errorf("%q, want %q", g.calls, want)
	}
	b, err := all.Add(ctx, ContainerConfig{ID: "b", Root: t.TempDir()})
	must(t, err)
	must(t, b.Delete(ctx))
	if exit, err := b.Wait(ctx, ""); err != nil || exit.Code != 137 {
		t.Errorf("deleted before its start: %+v, %v", exit, err)
	}
	g.gone = false
	d, err := all.Add(ctx, ContainerConfig{ID: "d", Root: t.TempDir()})
	must(t, err)
	if err := errors.Join(d.Signal(ctx, "", agentclient.SIGTERM, false), d.Start(ctx, ContainerStdio{})); err != nil {
		t.Errorf("one that got another signal before its start: %v", err)
	}
	must(t, d.Delete(ctx))
}

// TestContainersOfWhatIsThere: roots are directories, sources directories and regular files, paths absolute and without dots; and the
// guest is told which are files.
func TestContainersOfWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, socket, link := filepath.Join(dir, "file"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(dir, link)))
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer func() { _ = l.Close() }()
	g := &containerGuest{}
	all := containersOf(t, g, nil)
	for want, change := range map[string]func(*ContainerConfig){
		"root: ": func(c *ContainerConfig) { c.Root = file }, "root: : ": func(c *ContainerConfig) { c.Root = dir + "/none" }, "root: : : ": func(c *ContainerConfig) { c.Root = "relative" },
		"root: : : : ": func(c *ContainerConfig) { c.Root = dir + "/../" + filepath.Base(dir) }, "root: : : : : ": func(c *ContainerConfig) { c.Root = link },
		"mounts[0]: ": func(c *ContainerConfig) { c.Mounts[0].Source = socket }, "mounts[0]: : ": func(c *ContainerConfig) { c.Mounts[0].Source = link },
		"mounts[1]: ": func(c *ContainerConfig) { c.Mounts[1].Source = "/dev/null" }, "mounts[2]: ": func(c *ContainerConfig) { c.Mounts[2].Source = dir },
		"mounts: 65": func(c *ContainerConfig) { c.Mounts = make([]ContainerMount, MaxContainerMounts+1) },
	} {
		cfg := ContainerConfig{ID: "a", Root: dir, Mounts: []ContainerMount{{Type: "bind", Source: file, Target: "/f"}, {Type: "bind", Source: dir, Target: "/d"}, {Type: "tmpfs", Target: "/t"}}}
		change(&cfg)
		prefix := strings.SplitN(want, ": ", 2)[0]
		if _, err := all.Add(t.Context(), cfg); !errors.Is(err, ErrContainer) || !strings.Contains(err.Error(), prefix+": ") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if len(g.created) > 0 {
		t.Fatalf("the guest was asked: %v", g.created)
	}
	_, err = all.Add(t.Context(), ContainerConfig{ID: "a", Root: dir, Mounts: []ContainerMount{{Type: "bind", Source: file, Target: "/f"}, {Type: "bind", Source: dir, Target: "/d"}}})
	must(t, err)
	if m := g.created[0].GetMounts(); !m[0].GetSource().GetFile() || m[1].GetSource().GetFile() {
		t.Errorf("files: %v", m)
	}
}

// TestI11_ProcessesOfContainersAreBounded, and those that are forgotten make room.
func TestI11_ProcessesOfContainersAreBounded(t *testing.T) {
	t.Parallel()
	c, err := containersOf(t, &containerGuest{}, nil).Add(t.Context(), ContainerConfig{ID: "a", Root: t.TempDir()})
	must(t, err)
	p := ContainerProcess{Args: []string{"sh"}}
	for i := range MaxContainerExecs {
		must(t, c.Exec(t.Context(), fmt.Sprint(i), p, ContainerStdio{}))
	}
	if err := c.Exec(t.Context(), "more", p, ContainerStdio{}); !errors.Is(err, ErrContainer) || status.Code(err) == codes.ResourceExhausted {
		t.Errorf("above the bound: %v", err)
	}
	if _, err := c.Wait(t.Context(), "5"); err != nil {
		t.Error(err)
	}
	must(t, c.Forget("5"))
	must(t, c.Exec(t.Context(), "more", p, ContainerStdio{}))
}
