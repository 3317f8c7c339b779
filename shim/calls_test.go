package shim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	eventstypes "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// podOf is a service with a pod, in which containers with these names run.
func podOf(t *testing.T, names ...string) (*lab, []*fakeContainer) {
	t.Helper()
	l := newLab(t)
	l.running("pod", podSpec(typeSandbox, "pod"), streams{})
	var all []*fakeContainer
	for _, name := range names {
		all = append(all, l.running(name, podSpec("container", "pod"), streams{}))
	}
	return l, all
}

// events are the events that came, of which there are n or more.
func (l *lab) events(n int) []any {
	l.t.Helper()
	l.heard.topics(l.t, n)
	l.heard.mu.Lock()
	defer l.heard.mu.Unlock()
	return slices.Clone(l.heard.all)
}

func (l *lab) update(id string, limits *specs.LinuxResources) error {
	b, err := json.Marshal(limits)
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = l.s.Update(l.t.Context(), &taskapi.UpdateTaskRequest{ID: id, Resources: &anypb.Any{Value: b}})
	return err
}

// TestDeadMachinesContainersAreDeleted: the guest answers to nobody any more, and each container of the pod can be deleted all the
// same, and each exec. The twin is a guest that lives, whose refusal is the call's.
func TestDeadMachinesContainersAreDeleted(t *testing.T) {
	t.Parallel()
	l, all := podOf(t, "a", "b")
	if err := l.exec("a", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	_ = l.m.Close()
	for _, p := range [][2]string{{"a", "e"}, {"a", ""}, {"b", ""}, {"pod", ""}} {
		if got := l.wait(p[0], p[1]); got != 137 {
			t.Errorf("exit status of %v is %d, want 137", p, got)
		}
		if err := l.remove(p[0], p[1]); err != nil {
			t.Fatalf("deleting %v: %v", p, err)
		}
	}
	if len(all[0].forgot) > 0 {
		t.Error("a guest that has ended was asked")
	}
	if _, err := l.s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil {
		t.Error(err)
	}
	<-l.stop.Done()
}

// TestEachOOMKillIsAnEvent of its container, and no count is reported twice.
func TestEachOOMKillIsAnEvent(t *testing.T) {
	t.Parallel()
	l, _ := podOf(t, "a", "b")
	before := len(l.heard.topics(t, 6))
	for _, e := range []sandbox.ContainerEvent{{}, {ID: "a"}, {ID: "a", OOMKills: 1}, {ID: "a", OOMKills: 1}, {ID: "a", OOMKills: 2}, {ID: "b", OOMKills: 3}, {ID: "a", OOMKills: 3}} {
		l.m.oom <- e
	}
	_ = l.m.Close()
	var got []string
	for _, e := range l.events(before + 4 + 3) {
		if e, ok := e.(*eventstypes.TaskOOM); ok {
			got = append(got, e.ContainerID)
		}
	}
	if want := []string{"a", "a", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("got OOM events of %v, want %v", got, want)
	}
}

// TestEventsSayWhatHappened: names, streams, status and time of each event of a container and its exec.
func TestEventsSayWhatHappened(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := fifos(t)
	s.terminal = true
	c := l.running("one", baseSpec(), s)
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	c.proc("e").end(sandbox.ContainerExit{Code: 3})
	l.wait("one", "e")
	if err := l.remove("one", "e"); err != nil {
		t.Fatal(err)
	}
	if err := l.kill("one", "", 15); err != nil {
		t.Fatal(err)
	}
	l.wait("one", "")
	r, err := l.s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "one"})
	if err != nil || r.ExitStatus != 143 || !r.ExitedAt.AsTime().Equal(c.proc("").exit.At) || r.Pid != uint32(os.Getpid()) {
		t.Errorf("deleted: %v, %v", r, err)
	}
	pid := uint32(os.Getpid())
	want := []any{
		&eventstypes.TaskCreate{ContainerID: "one", Bundle: l.bundle("one"), Pid: pid, IO: &eventstypes.TaskIO{Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr, Terminal: true}},
		&eventstypes.TaskStart{ContainerID: "one", Pid: pid},
		&eventstypes.TaskExecAdded{ContainerID: "one", ExecID: "e"},
		&eventstypes.TaskExecStarted{ContainerID: "one", ExecID: "e", Pid: pid},
		&eventstypes.TaskExit{ContainerID: "one", ID: "e", Pid: pid, ExitStatus: 3},
		&eventstypes.TaskExit{ContainerID: "one", ID: "one", Pid: pid, ExitStatus: 143},
		&eventstypes.TaskDelete{ContainerID: "one", Pid: pid, ExitStatus: 143},
	}
	got := l.events(len(want))
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	for i, e := range got[:min(len(got), len(want))] {
		switch e := e.(type) {
		case *eventstypes.TaskExit:
			if at := c.proc(strings.TrimPrefix(e.ID, "one")).exit.At; !e.ExitedAt.AsTime().Equal(at) {
				t.Errorf("the end of %s is reported at %v, was at %v", e.ID, e.ExitedAt.AsTime(), at)
			}
			e.ExitedAt = nil
		case *eventstypes.TaskDelete:
			e.ExitedAt = nil
		}
		if !proto.Equal(e.(proto.Message), want[i].(proto.Message)) {
			t.Errorf("event %d is %v\nwant        %v", i, e, want[i])
		}
	}
}

// TestStateOfAProcess: containerd gets the streams, the bundle and the exit status of a process, whatever became of it.
func TestStateOfAProcess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := fifos(t)
	if err := l.create("one", baseSpec(), s); err != nil {
		t.Fatal(err)
	}
	state := func(execID string) *taskapi.StateResponse {
		t.Helper()
		r, err := l.s.State(t.Context(), &taskapi.StateRequest{ID: "one", ExecID: execID})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := &taskapi.StateResponse{ID: "one", Bundle: l.bundle("one"), Pid: pid(), Status: tasktypes.Status_CREATED, Stdin: s.stdin, Stdout: s.stdout, Stderr: s.stderr}
	if got := state(""); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := l.exec("one", "e", streams{terminal: true}); err != nil {
		t.Fatal(err)
	}
	want = &taskapi.StateResponse{ID: "e", ExecID: "e", Bundle: l.bundle("one"), Pid: pid(), Status: tasktypes.Status_RUNNING, Terminal: true}
	if got := state("e"); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := l.s.Pause(t.Context(), &taskapi.PauseRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := l.kill("one", "", 9); err != nil {
		t.Fatal(err)
	}
	l.wait("one", "")
	if got := state(""); got.Status != tasktypes.Status_STOPPED || got.ExitStatus != 137 || got.ExitedAt == nil {
		t.Errorf("a container that was killed while it was paused: %v", got)
	}
	if _, err := l.s.Resume(t.Context(), &taskapi.ResumeRequest{ID: "one"}); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("resuming what has ended: %v", err)
	}
	for name, err := range map[string]error{
		"a container that isn't there": l.state2("two"), "its end": l.kill("two", "", 9), "its removal": l.remove("two", ""),
		"an exec that isn't there": l.kill("one", "f", 9), "an exec's removal": l.remove("one", "f"), "its limits": l.update("two", &specs.LinuxResources{}),
	} {
		if !is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
	if r, err := l.s.Connect(t.Context(), &taskapi.ConnectRequest{ID: "one"}); err != nil || r.ShimPid != pid() || r.TaskPid != pid() {
		t.Errorf("connect: %v, %v", r, err)
	}
}

// TestPauseNeedsWhatRuns: what can't be paused stays as it is, and so does a container whose guest refuses.
func TestPauseNeedsWhatRuns(t *testing.T) {
	t.Parallel()
	l, _ := podOf(t)
	pause := func(id string) error {
		_, err := l.s.Pause(t.Context(), &taskapi.PauseRequest{ID: id})
		return err
	}
	resume := func(id string) error {
		_, err := l.s.Resume(t.Context(), &taskapi.ResumeRequest{ID: id})
		return err
	}
	if err := pause("pod"); !is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("pausing the pod itself: %v", err)
	}
	if err := l.create("one", podSpec("container", "pod"), streams{}); err != nil {
		t.Fatal(err)
	}
	if err := pause("one"); !is(err, errdefs.ErrFailedPrecondition) || l.state("one") != tasktypes.Status_CREATED {
		t.Errorf("pausing what wasn't started: %v", err)
	}
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := resume("one"); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("resuming what isn't paused: %v", err)
	}
	c := l.m.containers[0]
	c.failing = errors.New("the guest says no")
	if err := pause("one"); err == nil || l.state("one") != tasktypes.Status_RUNNING {
		t.Errorf("a guest that refuses: %v, %v", err, l.state("one"))
	}
	if got := l.heard.topics(t, 4); slices.Contains(got, "/tasks/paused") {
		t.Errorf("events %v of a pause that failed", got)
	}
	c.failing = nil
	if err := errors.Join(pause("one"), resume("one")); err != nil {
		t.Fatal(err)
	}
	if got := l.heard.topics(t, 6)[4:]; !slices.Equal(got, []string{"/tasks/paused", "/tasks/resumed"}) {
		t.Errorf("got the events %v", got)
	}
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 {
		t.Fatal(err)
	}
	if err := pause("one"); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("pausing what has ended: %v", err)
	}
}

// TestExecsAsTheyWereAskedFor: the guest gets the process, with the terminal that the call has and not the spec's; an id is there
// once, is free after its removal, and what the node alone has is refused as in a container.
func TestExecsAsTheyWereAskedFor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	add := func(execID string, p specs.Process, terminal bool) error {
		t.Helper()
		b, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.s.Exec(t.Context(), &taskapi.ExecProcessRequest{ID: "one", ExecID: execID, Spec: &anypb.Any{Value: b}, Terminal: terminal})
		return err
	}
	start := func(execID string) error {
		_, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one", ExecID: execID})
		return err
	}
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	sh := specs.Process{Args: []string{"sh"}, Cwd: "/tmp", User: specs.User{UID: 7}}
	if err := add("early", sh, false); err != nil {
		t.Fatal(err)
	}
	if err := start("early"); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("an exec in a container that wasn't started: %v", err)
	}
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := start(""); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("a second start: %v", err)
	}
	c := l.m.containers[0]
	if err := errors.Join(add("t", sh, true), start("t")); err != nil {
		t.Fatal(err)
	}
	if p := c.execs["t"]; !p.Terminal || p.UID != 7 || p.Cwd != "/tmp" || !slices.Equal(p.Args, []string{"sh"}) {
		t.Errorf("the guest got %+v", p)
	}
	for _, id := range []string{"t", ""} {
		if err := add(id, sh, false); !is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("the exec id %q: %v", id, err)
		}
	}
	for _, p := range []specs.Process{
		{Args: []string{"sh"}, ApparmorProfile: "cri"}, {Args: []string{"sh"}, SelinuxLabel: "l"}, {Args: nil}, {Args: []string{"sh"}, User: specs.User{Username: "me"}},
	} {
		if err := add("no", p, false); !is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := l.s.Exec(t.Context(), &taskapi.ExecProcessRequest{ID: "one", ExecID: "no", Spec: &anypb.Any{Value: []byte("{")}}); !is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("half a spec: %v", err)
	}
	if err := l.remove("one", "t"); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("deleting an exec that runs: %v", err)
	}
	if err := l.kill("one", "t", 15); err != nil || l.wait("one", "t") != 143 {
		t.Fatal(err)
	}
	if err := l.remove("one", "t"); err != nil || !slices.Equal(c.forgot, []string{"t"}) {
		t.Errorf("%v, the guest forgot %v", err, c.forgot)
	}
	if err := errors.Join(l.remove("one", "early"), add("t", sh, false), start("t")); err != nil {
		t.Errorf("an exec id that is free again: %v", err)
	}
	if len(c.forgot) != 1 {
		t.Errorf("the guest forgot %v, and never had the last one", c.forgot)
	}
	// One that was never started ends by a signal, as a container does.
	if err := errors.Join(add("idle", sh, false), l.kill("one", "idle", 9)); err != nil || l.wait("one", "idle") != 137 {
		t.Errorf("a signal for an exec that wasn't started: %v", err)
	}
	c.fail = &sandbox.ContainerStartError{Code: 126}
	if err := errors.Join(add("bad", sh, false), start("bad")); err == nil || l.wait("one", "bad") != 126 {
		t.Errorf("an exec that can't be started: %v", err)
	}
	c.fail = nil
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 { // waits for no exec that didn't run
		t.Error(err)
	}
}

// TestSignalsReachTheGuest as they were sent, and what the guest knows no more has ended.
func TestSignalsReachTheGuest(t *testing.T) {
	t.Parallel()
	l, all := podOf(t, "a")
	c := all[0]
	c.deaf = true
	if err := l.exec("a", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*taskapi.KillRequest{{ID: "a", Signal: 1}, {ID: "a", Signal: 15, All: true}, {ID: "a", ExecID: "e", Signal: 9}} {
		if _, err := l.s.Kill(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if want := []string{" 1 false", " 15 true", "e 9 false"}; !slices.Equal(c.signals, want) {
		t.Errorf("the guest got %q, want %q", c.signals, want)
	}
	for err, want := range map[error]error{sandbox.ErrNoProcess: errdefs.ErrNotFound, errors.New("the guest says no"): errdefs.ErrUnknown} {
		c.failing = err
		if err := l.kill("a", "", 15); !is(err, want) {
			t.Errorf("%v: %v, want %v", c.failing, err, want)
		}
	}
	if err := l.kill("pod", "", 15); err != nil || l.wait("pod", "") != 143 {
		t.Errorf("the pod's exit status is %d, want the signal's (%v)", l.wait("pod", ""), err)
	}
	<-l.m.over
	if err := l.kill("pod", "", 9); !is(err, errdefs.ErrNotFound) {
		t.Errorf("a signal for a pod that has ended: %v", err)
	}
}

// TestLimitsAreTheMachines: limits up to what the machine was booted with reach the guest, others are refused by name.
func TestLimitsAreTheMachines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	spec := baseSpec() // 64 MiB, half a processor
	c := l.running("one", spec, streams{terminal: true})
	machine := int64(64<<20 + nodesettings.DefaultOverhead)
	if l.m.cfg.Memory != machine || l.m.cfg.CPUs != 1 {
		t.Fatalf("a machine of %d bytes, %d processors", l.m.cfg.Memory, l.m.cfg.CPUs)
	}
	for _, c := range []struct {
		limits specs.LinuxResources
		want   string
	}{
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(machine)}}, ""},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(machine + 1)}}, "above the machine's"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](100000), Period: ptr[uint64](100000)}}, ""},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](100001), Period: ptr[uint64](100000)}}, "processors above the machine's 1"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}}, "cpuset"},
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](9)}}, ""},
	} {
		if err := l.update("one", &c.limits); c.want == "" && err != nil || c.want != "" && (!is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.limits, err, c.want)
		}
	}
	if len(c.limits) != 3 || c.limits[0].MemoryBytes != machine || c.limits[1].CPUQuota != 100*time.Millisecond || c.limits[1].CPUPeriod != 100*time.Millisecond || c.limits[2].PIDs != 9 {
		t.Errorf("the guest got %+v", c.limits)
	}
	if _, err := l.s.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "one", Width: 80, Height: 25}); err != nil || !slices.Equal(c.sizes, []agentclient.Size{{Rows: 25, Cols: 80}}) {
		t.Errorf("%v, the terminal has %+v", err, c.sizes)
	}
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.s.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "one", ExecID: "e", Width: 80}); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("the size of a terminal that isn't there: %v", err)
	}
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 {
		t.Fatal(err)
	}
	if _, err := l.s.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "one", Width: 80}); !is(err, errdefs.ErrNotFound) {
		t.Errorf("the size of a terminal that was: %v", err)
	}
}

// TestPodHasNoContainer: what containerd asks of the container that stands for the pod has an answer.
func TestPodHasNoContainer(t *testing.T) {
	t.Parallel()
	l, _ := podOf(t)
	if r, err := l.s.Pids(t.Context(), &taskapi.PidsRequest{ID: "pod"}); err != nil || len(r.Processes) != 0 {
		t.Errorf("pids: %v, %v", r, err)
	}
	if _, err := l.s.Stats(t.Context(), &taskapi.StatsRequest{ID: "pod"}); err != nil {
		t.Errorf("stats: %v", err)
	}
	if err := l.update("pod", &specs.LinuxResources{}); !is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("update: %v", err)
	}
	if _, err := l.s.ResizePty(t.Context(), &taskapi.ResizePtyRequest{ID: "pod"}); !is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("resize: %v", err)
	}
}

// TestStatsAreTheGroups: each figure of a container's control group has containerd's name of the same. Without a limit there are
// containerd's words for that: 0 processes, and all bytes.
func TestStatsAreTheGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	c := l.running("one", baseSpec(), streams{})
	figures := func(of proto.Message, base uint64) map[string]uint64 {
		all := map[string]uint64{}
		for i := range of.ProtoReflect().Descriptor().Fields().Len() {
			all[string(of.ProtoReflect().Descriptor().Fields().Get(i).Name())] = base + uint64(i)
		}
		return all
	}
	c.stats = sandbox.ContainerStats{
		Memory: figures(&stats.MemoryStat{}, 1000), CPU: figures(&stats.CPUStat{}, 2000), MemoryEvents: figures(&stats.MemoryEvents{}, 3000),
		MemoryCurrent: 5, MemoryPeak: 6, MemoryLimit: math.MaxUint64, PIDsCurrent: 8, PIDsLimit: 9,
	}
	get := func() *stats.Metrics {
		t.Helper()
		r, err := l.s.Stats(t.Context(), &taskapi.StatsRequest{ID: "one"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := typeurl.UnmarshalAny(r.Stats)
		if err != nil {
			t.Fatal(err)
		}
		return m.(*stats.Metrics)
	}
	m := get()
	own := map[string]uint64{"usage": 5, "max_usage": 6, "usage_limit": math.MaxUint64}
	seen := 0
	for of, want := range map[proto.Message]map[string]uint64{m.Memory: c.stats.Memory, m.CPU: c.stats.CPU, m.MemoryEvents: c.stats.MemoryEvents} {
		of.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			name := string(f.Name())
			if n, ok := own[name]; ok {
				want[name] = n
			}
			if f.Kind() == protoreflect.Uint64Kind {
				if seen++; v.Uint() != want[name] {
					t.Errorf("%s is %d, want %d", name, v.Uint(), want[name])
				}
			}
			return true
		})
	}
	if seen < 31 || m.Memory.InactiveFile == 0 || m.Memory.Anon == 0 || m.Pids.Current != 8 || m.Pids.Limit != 9 {
		t.Errorf("%d figures: %v", seen, m)
	}
	c.stats.MemoryLimit, c.stats.PIDsLimit = 64<<20, math.MaxUint64
	if m := get(); m.Memory.UsageLimit != 64<<20 || m.Pids.Limit != 0 {
		t.Errorf("limits: %v, %v", m.Memory.UsageLimit, m.Pids)
	}
	if r, err := l.s.Pids(t.Context(), &taskapi.PidsRequest{ID: "one"}); err != nil || len(r.Processes) != 2 || r.Processes[1].Pid != 9 {
		t.Errorf("pids: %v, %v", r, err)
	}
}

// TestContainersHaveTheirOwnSysctls beside the pod's, which are not changed by them.
func TestContainersHaveTheirOwnSysctls(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	pod := podSpec(typeSandbox, "pod")
	pod.Linux.Sysctl = map[string]string{"net.core.somaxconn": "9", "kernel.shm_rmid_forced": "0"}
	l.running("pod", pod, streams{})
	a := podSpec("container", "pod")
	a.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1"}
	l.running("a", a, streams{})
	l.running("b", podSpec("container", "pod"), streams{})
	for i, want := range []string{"1", "0"} {
		if got := l.m.containers[i].cfg.Sysctls; len(got) != 2 || got["kernel.shm_rmid_forced"] != want || got["net.core.somaxconn"] != "9" {
			t.Errorf("container %d has %v, want %s", i, got, want)
		}
	}
}

// TestCreateAgainstOrder: an id that is there, and checkpoints, are refused by kind, and change nothing.
func TestCreateAgainstOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.running("one", baseSpec(), streams{})
	if err := l.create("one", baseSpec(), streams{}); !is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("the same id: %v", err)
	}
	for _, r := range []*taskapi.CreateTaskRequest{{ID: "two", Checkpoint: "/c"}, {ID: "two", ParentCheckpoint: "/c"}} {
		r.Bundle, r.Options = l.bundle("one"), l.options
		if _, err := l.s.Create(t.Context(), r); !is(err, errdefs.ErrNotImplemented) {
			t.Errorf("a checkpoint: %v", err)
		}
	}
	if l.boots != 1 || l.machineOver() || l.state("one") != tasktypes.Status_RUNNING {
		t.Errorf("%d boots, over: %v", l.boots, l.machineOver())
	}
	if _, err := l.s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.stop.Done():
		t.Error("the shim ends while it has a container")
	default:
	}
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 {
		t.Error(err)
	}
}

// TestStartFailsForAnotherReason than the program: the status is that of a process which was killed, and no event tells of a start.
func TestStartFailsForAnotherReason(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := fifos(t)
	if err := l.create("one", baseSpec(), s); err != nil {
		t.Fatal(err)
	}
	c := l.m.containers[0]
	c.fail = errors.New("the guest says no")
	if _, err := l.s.Start(t.Context(), &taskapi.StartRequest{ID: "one"}); err == nil || l.wait("one", "") != 137 {
		t.Errorf("%v, exit status %d", err, l.wait("one", ""))
	}
	if err := l.s.tasks["one"].init.io.out[0].Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the output of a process that didn't start is still open: %v", err)
	}
	if err := l.remove("one", ""); err != nil {
		t.Fatal(err)
	}
	if got := l.heard.topics(t, 2); !slices.Equal(got, []string{"/tasks/create", "/tasks/delete"}) {
		t.Errorf("events %v", got)
	}
}

// TestMachineAsAsked: what a machine gets of spec and settings.
func TestMachineAsAsked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.settings("backend = \"qemu\"\nnode = \"n1\"\ndisk = \"3G\"\n")
	l.running("one", baseSpec(), streams{})
	cfg := l.m.cfg
	if !cfg.Cold || !cfg.Containers || cfg.Backend != "qemu" || cfg.Hostname != "web" || cfg.Home != filepath.Join(l.dir, "home") || cfg.Disk != 3<<30 || cfg.AuditLabels["node"] != "n1" || cfg.Pod == nil {
		t.Errorf("got %+v", cfg)
	}
	left, err := readLeft(l.bundle("one"))
	if err != nil || left.Home != cfg.Home || left.Machine != filepath.Join(cfg.Home, "run/sb-1") || left.Exited != nil {
		t.Errorf("left for cleaning: %+v, %v", left, err)
	}
	l = newLab(t)
	l.fail = errors.New("no machine today")
	if err := l.create("one", baseSpec(), streams{}); err == nil || !strings.Contains(err.Error(), "no machine today") || l.state2("one") == nil {
		t.Errorf("got %v", err)
	}
}

// TestShutdownReportsAllEnds: a shim that is told to end ends its machine, and containerd gets the end of each process before that.
func TestShutdownReportsAllEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		c := l.running("one", baseSpec(), streams{})
		synctest.Wait()
		c.held = make(chan struct{})
		go l.stop.Shutdown()
		synctest.Wait()
		select {
		case <-l.stop.Done():
			t.Error("the shim ended before its container")
		default:
		}
		if !l.machineOver() {
			t.Error("the machine goes on")
		}
		close(c.held)
		<-l.stop.Done()
		synctest.Wait()
		if got := l.heard.topics(t, 3); !slices.Equal(got, []string{"/tasks/create", "/tasks/start", "/tasks/exit"}) {
			t.Errorf("events %v", got)
		}
	})
}

// TestKilledProcessesWaitForNoReader: some time after a SIGKILL the outputs are closed, so that the end is reported though nobody
// reads them. The twin is another signal, after which they stay open.
func TestKilledProcessesWaitForNoReader(t *testing.T) {
	t.Parallel()
	for _, r := range []*taskapi.KillRequest{{Signal: 9}, {Signal: 9, All: true}, {Signal: 15}} {
		s := fifos(t)
		s.stdin, r.ID = "", "one"
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			c := l.running("one", baseSpec(), s)
			c.deaf = true
			if _, err := l.s.Kill(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			out := c.proc("").io.Stdout.(*output)
			open := func() bool {
				synctest.Wait()
				_, err := out.Stat()
				return err == nil
			}
			if time.Sleep(killGrace - time.Second); !open() {
				t.Error("the output was closed at once")
			}
			if time.Sleep(2 * time.Second); open() != (r.Signal != 9) {
				t.Errorf("%v: the output is open: %v", r, open())
			}
		})
	}
}

// TestFailedCreateEndsTheMachine that was booted for it, by a mount that is refused; for a bundle that can't be written to none is.
func TestFailedCreateEndsTheMachine(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*lab, *specs.Spec) error{
		"a hostPath": func(_ *lab, s *specs.Spec) error {
			s.Mounts = append(s.Mounts, bind("/proc", "/x"))
			return nil
		},
		"the bundle": func(l *lab, _ *specs.Spec) error {
			return os.MkdirAll(filepath.Join(l.bundle("one"), leftFile), 0o700)
		},
	} {
		l, s := newLab(t), baseSpec()
		if err := prepare(l, s); err != nil {
			t.Fatal(err)
		}
		if err := l.create("one", s, streams{}); err == nil || l.boots > 0 && !l.machineOver() || l.state2("one") == nil || len(l.m.containers) > 0 {
			t.Errorf("%s: %v, the machine is over: %v", name, err, l.machineOver())
		}
	}
}

// TestWaitEndsWithItsCall, and leaves the container as it was.
func TestWaitEndsWithItsCall(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.running("one", baseSpec(), streams{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.s.Wait(ctx, &taskapi.WaitRequest{ID: "one"}); !is(err, context.Canceled) || l.state("one") != tasktypes.Status_RUNNING {
		t.Errorf("got %v", err)
	}
	if err := l.kill("one", "", 9); err != nil || l.wait("one", "") != 137 {
		t.Error(err)
	}
}

// TestEventsGoOn after one that containerd didn't take.
func TestEventsGoOn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.heard.fail = errors.New("containerd restarts")
	l.running("one", baseSpec(), streams{})
	if got := l.heard.topics(t, 1); got[0] != "/tasks/start" {
		t.Errorf("events %v", got)
	}
}

// TestEventsOutliveTheirShim: what containerd hasn't taken when the shim is told to end is sent all the same.
func TestEventsOutliveTheirShim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.heard.held = make(chan struct{})
		l.running("one", baseSpec(), streams{})
		for range 20 {
			if err := errors.Join(l.exec("one", "e", streams{}), l.kill("one", "e", 9)); err != nil {
				t.Fatal(err)
			}
			l.wait("one", "e")
			if err := l.remove("one", "e"); err != nil {
				t.Fatal(err)
			}
		}
		go l.stop.Shutdown()
		<-l.stop.Done()
		close(l.heard.held)
		synctest.Wait()
		if got := l.heard.topics(t, 0); len(got) != 2+20*3+1 {
			t.Errorf("%d events, want %d", len(got), 2+20*3+1)
		}
	})
}

// TestContainersRunAsLongAsTheirExecs: a container whose first process has ended runs until the guest tells of its execs' ends.
func TestContainersRunAsLongAsTheirExecs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		c := l.running("one", baseSpec(), streams{})
		if err := l.exec("one", "e", streams{}); err != nil {
			t.Fatal(err)
		}
		c.proc("").end(sandbox.ContainerExit{Code: 1})
		if synctest.Wait(); l.state("one") != tasktypes.Status_RUNNING {
			t.Errorf("with an exec that runs: %v", l.state("one"))
		}
		c.proc("e").end(sandbox.ContainerExit{})
		if got := l.wait("one", ""); got != 1 {
			t.Errorf("exit status %d, want 1", got)
		}
	})
}
