package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	ptypes "github.com/containerd/containerd/v2/pkg/protobuf/types"
	containerdshim "github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/agentd/agentclient"
)

// done is the answer of calls that return nothing.
func done(err error) (*ptypes.Empty, error) { return &ptypes.Empty{}, toGRPC(err) }

// Create makes a container whose first process waits for Start.
func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	if err := s.create(ctx, r); err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.CreateTaskResponse{Pid: pid()}, nil
}

// Start starts a container's first process, or an exec.
func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err == nil {
		err = s.start(ctx, t, p)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.StartResponse{Pid: pid()}, nil
}

// Exec makes an exec that waits for Start.
func (s *service) Exec(_ context.Context, r *taskapi.ExecProcessRequest) (*ptypes.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return done(err)
	}
	var spec specs.Process
	if err := json.Unmarshal(r.Spec.GetValue(), &spec); err != nil {
		return done(refused("the exec's spec: " + err.Error()))
	}
	spec.Terminal = r.Terminal
	refusals := &refusals{dropProfiles: s.currentPod().settings.DropProfiles()}
	process := processOf(&spec, refusals)
	if err := refusals.err(); err != nil {
		return done(err)
	}
	if err := t.addExec(r.ExecID, streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal}, process); err != nil {
		return done(err)
	}
	s.send(&eventstypes.TaskExecAdded{ContainerID: r.ID, ExecID: r.ExecID})
	return done(nil)
}

// Delete removes what has ended, or was never started.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := s.delete(ctx, t, p); err != nil {
		return nil, toGRPC(err)
	}
	out := &taskapi.DeleteResponse{Pid: pid(), ExitStatus: p.status, ExitedAt: protobuf.ToTimestamp(p.at)}
	if r.ExecID == "" {
		s.send(&eventstypes.TaskDelete{ContainerID: r.ID, Pid: out.Pid, ExitStatus: out.ExitStatus, ExitedAt: out.ExitedAt})
	}
	return out, nil
}

func (s *service) delete(ctx context.Context, t *task, p *process) error {
	t.mu.Lock()
	running := p.started && !p.over()
	t.mu.Unlock()
	if running {
		return withKind("the process runs; kill it first", errdefs.ErrFailedPrecondition)
	}
	if p.execID == "" {
		return s.remove(ctx, t)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.execs, p.execID)
	if p.started && !p.abandoned() && !s.currentPod().over() {
		return t.c.Forget(p.execID)
	}
	return nil
}

// State says how a process is.
func (s *service) State(_ context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, toGRPC(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id := p.execID
	if id == "" {
		id = t.id
	}
	out := &taskapi.StateResponse{
		ID: id, Bundle: t.bundle, Pid: pid(), Status: p.state(t.paused), ExecID: p.execID,
		Stdin: p.streams.stdin, Stdout: p.streams.stdout, Stderr: p.streams.stderr, Terminal: p.streams.terminal,
	}
	if p.over() {
		out.ExitStatus, out.ExitedAt = p.status, protobuf.ToTimestamp(p.at)
	}
	return out, nil
}

// Wait waits for the end of a process.
func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	_, p, err := s.process(r.ID, r.ExecID)
	if err == nil {
		err = p.wait(ctx)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.WaitResponse{ExitStatus: p.status, ExitedAt: protobuf.ToTimestamp(p.at)}, nil
}

// Kill sends a signal.
func (s *service) Kill(ctx context.Context, r *taskapi.KillRequest) (*ptypes.Empty, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err == nil {
		err = s.signal(ctx, t, p, agentclient.Signal(r.Signal), r.All)
	}
	return done(err)
}

// Pids are the guest's.
func (s *service) Pids(ctx context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	out := &taskapi.PidsResponse{}
	if t.c == nil {
		return out, nil
	}
	pids, err := t.c.Pids(ctx)
	if err != nil {
		return nil, toGRPC(err)
	}
	for _, n := range pids {
		out.Processes = append(out.Processes, &tasktypes.ProcessInfo{Pid: n})
	}
	return out, nil
}

// Pause holds a container's processes still.
func (s *service) Pause(ctx context.Context, r *taskapi.PauseRequest) (*ptypes.Empty, error) {
	t, err := s.task(r.ID)
	if err == nil {
		err = t.setPaused(ctx, true)
	}
	if err == nil {
		s.send(&eventstypes.TaskPaused{ContainerID: r.ID})
	}
	return done(err)
}

// Resume undoes Pause.
func (s *service) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*ptypes.Empty, error) {
	t, err := s.task(r.ID)
	if err == nil {
		err = t.setPaused(ctx, false)
	}
	if err == nil {
		s.send(&eventstypes.TaskResumed{ContainerID: r.ID})
	}
	return done(err)
}

// CloseIO ends a process's standard input.
func (s *service) CloseIO(_ context.Context, r *taskapi.CloseIORequest) (*ptypes.Empty, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err == nil && r.Stdin {
		t.mu.Lock()
		p.io.closeStdin()
		t.mu.Unlock()
	}
	return done(err)
}

// ResizePty changes the size of a process's terminal.
func (s *service) ResizePty(ctx context.Context, r *taskapi.ResizePtyRequest) (*ptypes.Empty, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err == nil {
		err = t.resize(ctx, p, sizeOf(r.Width, r.Height))
	}
	return done(err)
}

// Update changes a container's limits, below those of the machine that was booted.
func (s *service) Update(ctx context.Context, r *taskapi.UpdateTaskRequest) (*ptypes.Empty, error) {
	t, err := s.task(r.ID)
	if err == nil {
		err = s.update(ctx, t, r)
	}
	return done(err)
}

func (s *service) update(ctx context.Context, t *task, r *taskapi.UpdateTaskRequest) error {
	var limits specs.LinuxResources
	if err := json.Unmarshal(r.Resources.GetValue(), &limits); err != nil {
		return refused("the limits: " + err.Error())
	}
	pod := s.currentPod()
	refusals := &refusals{dropProfiles: pod.settings.DropProfiles()}
	to := resourcesOf(&limits, refusals)
	const boot = "the machine has what it was booted with: make the pod again"
	refusals.add(to.MemoryBytes > pod.memory, fmt.Sprintf("resizing memory to %d bytes, above the machine's %d,", to.MemoryBytes, pod.memory), boot)
	refusals.add(to.CPUPeriod > 0 && to.CPUQuota > to.CPUPeriod*time.Duration(pod.cpus), fmt.Sprintf("resizing processors above the machine's %d", pod.cpus), boot)
	refusals.add(t.c == nil, "resizing the pod itself", "resize a container of it")
	if err := refusals.err(); err != nil {
		return err
	}
	return t.c.Update(ctx, to)
}

// Stats are the figures of a container's control group, of version 2.
func (s *service) Stats(ctx context.Context, r *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	m, err := t.metrics(ctx, s.currentPod())
	if err != nil {
		return nil, toGRPC(err)
	}
	data, err := typeurl.MarshalAny(m)
	if err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.StatsResponse{Stats: typeurl.MarshalProto(data)}, nil
}

// Checkpoint isn't there.
func (s *service) Checkpoint(context.Context, *taskapi.CheckpointTaskRequest) (*ptypes.Empty, error) {
	return done(withKind("checkpoints of containers aren't made; msb snapshot is for sandboxes of msb", errdefs.ErrNotImplemented))
}

// Connect names the shim's process.
func (s *service) Connect(context.Context, *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	return &taskapi.ConnectResponse{ShimPid: uint32(os.Getpid()), TaskPid: pid()}, nil
}

// Shutdown ends the shim once the pod has no container. The socket goes first: by the answer containerd may remove the bundle, in which
// RunShim would read where it is.
func (s *service) Shutdown(context.Context, *taskapi.ShutdownRequest) (*ptypes.Empty, error) {
	s.mu.Lock()
	empty := len(s.tasks) == 0
	s.mu.Unlock()
	if !empty {
		return done(nil)
	}
	var err error
	if s.address != "" {
		if err = containerdshim.RemoveSocket(s.address); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	s.stop.Shutdown()
	return done(err)
}
