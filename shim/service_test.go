package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	eventstypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

func is(err, kind error) bool { return errors.Is(errgrpc.ToNative(err), kind) }

func podSpec(kind, id string) *specs.Spec {
	s := baseSpec()
	s.Annotations = map[string]string{annotationType: kind, annotationSandbox: id}
	return s
}

func (l *lab) exec(id, execID string, s streams) error {
	b, err := json.Marshal(&specs.Process{Args: []string{"true"}, Cwd: "/"})
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = l.s.Exec(l.t.Context(), &taskapi.ExecProcessRequest{ID: id, ExecID: execID, Spec: &anypb.Any{Value: b}, Stdin: s.stdin, Stdout: s.stdout, Terminal: s.terminal})
	if err == nil {
		_, err = l.s.Start(l.t.Context(), &taskapi.StartRequest{ID: id, ExecID: execID})
	}
	return err
}

func (l *lab) kill(id, execID string, sig uint32) error {
	_, err := l.s.Kill(l.t.Context(), &taskapi.KillRequest{ID: id, ExecID: execID, Signal: sig})
	return err
}

func (l *lab) remove(id, execID string) error {
	_, err := l.s.Delete(l.t.Context(), &taskapi.DeleteRequest{ID: id, ExecID: execID})
	return err
}

func (l *lab) state(id string) tasktypes.Status {
	l.t.Helper()
	r, err := l.s.State(l.t.Context(), &taskapi.StateRequest{ID: id})
	if err != nil {
		l.t.Fatal(err)
	}
	return r.Status
}

func (l *lab) machineOver() bool {
	select {
	case <-l.m.over:
		return true
	default:
		return false
	}
}

// TestLifeOfOneContainer: states, exit status and events, in their order; the machine ends with the container.
func TestLifeOfOneContainer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	if got := l.state("one"); got != tasktypes.Status_CREATED {
		t.Errorf("created: %v", got)
	}
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	if err := l.remove("one", ""); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("deleting what runs: %v", err)
	}
	if err := l.kill("one", "e", 15); err != nil {
		t.Fatal(err)
	}
	if got := l.wait("one", "e"); got != 143 {
		t.Errorf("exec's exit status %d, want 143", got)
	}
	if err := l.exec("one", "late", streams{}); err != nil {
		t.Fatal(err)
	}
	if err := l.kill("one", "", 9); err != nil {
		t.Fatal(err)
	}
	if got := l.wait("one", ""); got != 137 {
		t.Errorf("exit status %d, want 137", got)
	}
	<-l.m.over // no other container can come
	if err := l.kill("one", "", 9); !is(err, errdefs.ErrNotFound) {
		t.Errorf("a signal for what has ended: %v, want not found", err)
	}
	if err := l.exec("one", "dead", streams{}); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("an exec in what has ended: %v", err)
	}
	if err := l.remove("one", ""); err != nil {
		t.Fatal(err)
	}
	if !l.machineOver() {
		t.Error("the machine goes on without a container")
	}
	want := []string{"/tasks/create", "/tasks/start", "/tasks/exec-added", "/tasks/exec-started", "/tasks/exit", "/tasks/exec-added", "/tasks/exec-started", "/tasks/exit", "/tasks/exit", "/tasks/exec-added", "/tasks/delete"}
	if got := l.heard.topics(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("events %v\nwant   %v", got, want)
	}
	left, err := readLeft(l.bundle("one"))
	if err != nil || left.Exited == nil || left.Exited.Status != 137 {
		t.Errorf("left for cleaning: %+v, %v", left, err)
	}
}

// TestPodIsOneMachine: containers join the first one's machine, the pause image is not run, and the pod's end is the
// machine's.
func TestPodIsOneMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	pod := podSpec(typeSandbox, "pod")
	pod.Annotations[annotationMemory] = "134217728"
	pod.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	l.running("pod", pod, streams{})
	if len(l.m.containers) != 0 {
		t.Error("the pause image was made a container")
	}
	if err := l.exec("pod", "e", streams{}); !is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("an exec in the pod itself: %v", err)
	}
	a, b := podSpec("container", "pod"), podSpec("container", "pod")
	a.Hostname, b.Hostname = "", ""
	l.running("a", a, streams{})
	l.running("b", b, streams{})
	if l.boots != 1 || len(l.m.containers) != 2 {
		t.Errorf("%d machines, %d containers", l.boots, len(l.m.containers))
	}
	if c := l.m.containers[1].cfg; c.Hostname != "web" || len(c.Sysctls) != 1 {
		t.Errorf("host name %q, sysctls %v, want the pod's", c.Hostname, c.Sysctls)
	}
	if l.m.cfg.Memory != 128<<20+nodesettings.DefaultOverhead || l.m.netns != "/run/netns/x" {
		t.Errorf("memory %d, network %s", l.m.cfg.Memory, l.m.netns)
	}
	if err := l.kill("a", "", 15); err != nil || l.wait("a", "") != 143 {
		t.Fatal(err)
	}
	if err := l.remove("a", ""); err != nil || l.machineOver() || !l.m.containers[0].deleted {
		t.Errorf("deleting one of two: %v, machine over: %v", err, l.machineOver())
	}
	if err := l.kill("pod", "", 9); err != nil || l.wait("pod", "") != 137 {
		t.Errorf("killing the pod: %v", err)
	}
	<-l.m.over
	if got := l.wait("b", ""); got != 137 {
		t.Errorf("a container of a pod that ended: %d, want 137", got)
	}
	for _, id := range []string{"b", "pod"} {
		if err := l.remove(id, ""); err != nil {
			t.Error(err)
		}
	}
}

// TestMachineDies: every process that ran in it is reported as killed, the containers' own last.
func TestMachineDies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.running("one", baseSpec(), streams{})
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	_ = l.m.Close()
	if a, b := l.wait("one", "e"), l.wait("one", ""); a != 137 || b != 137 {
		t.Errorf("got %d and %d, want 137", a, b)
	}
	l.heard.topics(t, 6)
	for i, want := range []string{"e", "one"} {
		if e, ok := l.heard.all[4+i].(*eventstypes.TaskExit); !ok || e.ID != want {
			t.Errorf("event %d is %+v, want the exit of %s", 4+i, l.heard.all[4+i], want)
		}
	}
	if err := l.remove("one", ""); err != nil {
		t.Error(err)
	}
}

// TestFailedCreateLeavesNothing: no machine, and the id is free.
func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.m.fail = errors.New("the guest says no")
	if err := l.create("one", baseSpec(), streams{}); err == nil || !strings.Contains(err.Error(), "the guest says no") {
		t.Errorf("got %v", err)
	}
	if !l.machineOver() || l.state2("one") == nil {
		t.Error("the machine goes on, or the container is there")
	}
	if _, err := l.s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil {
		t.Error(err)
	}
	<-l.stop.Done()
}

func (l *lab) state2(id string) error {
	_, err := l.s.State(l.t.Context(), &taskapi.StateRequest{ID: id})
	return err
}

// TestRefusedSpecBootsNothing is told by name, before a machine is booted.
func TestRefusedSpecBootsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := baseSpec()
	s.Linux.Namespaces = s.Linux.Namespaces[1:]
	if err := l.create("one", s, streams{}); !is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "hostPID") {
		t.Errorf("got %v", err)
	}
	if l.boots != 0 {
		t.Error("a machine was booted")
	}
	b, err := json.Marshal(baseSpec())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), `"hostname"`, `"later":1,"hostname"`, 1)
	if err := os.WriteFile(filepath.Join(l.dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSpec(l.dir); err == nil || !strings.Contains(err.Error(), "later") {
		t.Errorf("a field of a later spec: %v", err)
	}
}

// TestStartFails: the exit status is the shell's for a program that is missing, and the container can be deleted.
func TestStartFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	l.m.containers[0].fail = &sandbox.ContainerStartError{Code: 127, Message: "no such program"}
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("got %v", err)
	}
	if got := l.wait("one", ""); got != 127 {
		t.Errorf("exit status %d, want 127", got)
	}
	if err := l.remove("one", ""); err != nil {
		t.Error(err)
	}
}

// TestCallsReachTheContainer: pause, resume, update, resize, stats, pids, OOM.
func TestCallsReachTheContainer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	c := l.running("one", baseSpec(), streams{terminal: true})
	if _, err := l.s.Pause(t.Context(), &taskapi.PauseRequest{ID: "one"}); err != nil || l.state("one") != tasktypes.Status_PAUSED {
		t.Errorf("pause: %v, %v", err, l.state("one"))
	}
	if _, err := l.s.Pause(t.Context(), &taskapi.PauseRequest{ID: "one"}); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("a second pause: %v", err)
	}
	if err := l.exec("one", "held", streams{}); !is(err, errdefs.ErrFailedPrecondition) || !strings.Contains(err.Error(), "resume it first") {
		t.Errorf("an exec in a paused container: %v", err)
	}
	if _, err := l.s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "one"}); err != nil || l.state("one") != tasktypes.Status_RUNNING {
		t.Errorf("resume: %v, %v", err, l.state("one"))
	}
	if _, err := l.s.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "one", Width: 80, Height: 25}); err != nil {
		t.Error(err)
	}
	update := func(limit int64) error {
		b, err := json.Marshal(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.s.Update(t.Context(), &taskapi.UpdateTaskRequest{ID: "one", Resources: &anypb.Any{Value: b}})
		return err
	}
	if err := update(32 << 20); err != nil {
		t.Errorf("a smaller limit: %v", err)
	}
	if err := update(1 << 40); !is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "above the machine's") {
		t.Errorf("a limit above the machine's: %v", err)
	}
	if r, err := l.s.Stats(t.Context(), &taskapi.StatsRequest{ID: "one"}); err != nil || r.Stats.GetTypeUrl() != "io.containerd.cgroups.v2.Metrics" {
		t.Errorf("stats: %v, %v", r, err)
	}
	if r, err := l.s.Pids(t.Context(), &taskapi.PidsRequest{ID: "one"}); err != nil || len(r.Processes) != 2 {
		t.Errorf("pids: %v, %v", r, err)
	}
	if _, err := l.s.Checkpoint(t.Context(), nil); !is(err, errdefs.ErrNotImplemented) {
		t.Errorf("checkpoint: %v", err)
	}
	if got, want := c.calls, []string{"pause", "resume", "resize", "update"}; !slices.Equal(got, want) {
		t.Errorf("the container got %v, want %v", got, want)
	}
	l.m.oom <- sandbox.ContainerEvent{ID: "one"} // none so far
	l.m.oom <- sandbox.ContainerEvent{ID: "one", OOMKills: 1}
	l.heard.topics(t, 6)
	if err := l.kill("one", "", 9); err != nil {
		t.Error(err)
	}
	if got := l.heard.topics(t, 7)[5:]; !slices.Equal(got, []string{"/tasks/oom", "/tasks/exit"}) {
		t.Errorf("got the events %v", got)
	}
}

// TestSignalBeforeStart ends a container that was never started.
func TestSignalBeforeStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	if err := l.kill("one", "", uint32(agentclient.SIGKILL)); err != nil || l.wait("one", "") != 137 {
		t.Error(err)
	}
	if err := l.remove("one", ""); err != nil {
		t.Error(err)
	}
}

// TestExecsEndFirst: the end of a container is its last event, however late the guest tells of its execs' ends.
func TestExecsEndFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	c := l.running("one", baseSpec(), streams{})
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	c.proc("").end(sandbox.ContainerExit{Code: 1})
	for l.exec("one", "late", streams{}) == nil { // until the end has come
		if err := l.kill("one", "late", 9); err != nil || l.wait("one", "late") != 137 || l.remove("one", "late") != nil {
			t.Fatal(err)
		}
	}
	if got := l.state("one"); got != tasktypes.Status_RUNNING {
		t.Errorf("with an exec that runs: %v", got)
	}
	c.proc("e").end(sandbox.ContainerExit{})
	if got := l.wait("one", ""); got != 1 {
		t.Errorf("exit status %d, want 1", got)
	}
}

// TestCallsRaceWithStart: what containerd may send while a process starts. No signal gets lost.
func TestCallsRaceWithStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		if err := l.kill("one", "", uint32(agentclient.SIGKILL)); err != nil {
			t.Error(err)
		}
	})
	calls.Go(func() {
		_, err := l.s.CloseIO(t.Context(), &taskapi.CloseIORequest{ID: "one", Stdin: true})
		if err != nil {
			t.Error(err)
		}
	})
	_, _ = l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}) // too late after the signal
	calls.Wait()
	if got := l.wait("one", ""); got != 137 {
		t.Errorf("exit status %d, want that of the signal", got)
	}
}
