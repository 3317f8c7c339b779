package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// What a guest that answers wrongly, or not at all, does to the node.

// hostilePod is a pod with a container that doesn't obey.
func hostilePod(t *testing.T, obey time.Duration) (*lab, *fakeContainer) {
	t.Helper()
	l := newLab(t)
	l.s.obeyWait = obey
	l.running("pod", podSpec(typeSandbox, "pod"), streams{})
	c := l.running("one", podSpec("container", "pod"), streams{})
	return l, c
}

// obedience is how long an obedient guest has.
const obedience = 3 * time.Second

// ends waits for the end of the machine, and little longer than obedience where it is not to come.
func (l *lab) ends(wanted bool) bool {
	wait := patience
	if !wanted {
		wait = obedience + time.Second/2
	}
	select {
	case <-l.m.over:
		return true
	case <-time.After(wait):
		return false
	}
}

// TestI11_GuestsThatKeepAContainerLoseTheirMachine: containerd ends a pod by its containers, and would wait for one for ever. The twins are a
// guest that obeys, and one that doesn't before its time is over.
func TestI11_GuestsThatKeepAContainerLoseTheirMachine(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		deaf bool
		obey time.Duration
		over bool
	}{"deaf": {true, 10 * time.Millisecond, true}, "in time": {true, time.Hour, false}, "obedient": {false, obedience, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := hostilePod(t, x.obey)
			c.unruly = x.deaf
			if err := l.kill("one", "", uint32(agentclient.SIGKILL)); err != nil && !is(err, errdefs.ErrNotFound) {
				t.Fatal(err)
			}
			if got := l.ends(x.over); got != x.over {
				t.Fatalf("the machine's end: %v, want %v", got, x.over)
			}
			if name == "in time" {
				return
			}
			if got := l.wait("one", ""); got != 137 {
				t.Errorf("exit status %d", got)
			}
			if err := l.remove("one", ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestI11_GuestsThatDontRemoveAContainerLoseTheirMachine: containerd tries again and again. The twin has time.
func TestI11_GuestsThatDontRemoveAContainerLoseTheirMachine(t *testing.T) {
	t.Parallel()
	for over, obey := range map[bool]time.Duration{true: 10 * time.Millisecond, false: time.Hour} {
		l, c := hostilePod(t, obey)
		c.proc("").end(sandbox.ContainerExit{})
		l.wait("one", "")
		c.unruly = true
		if err := l.remove("one", ""); err == nil && !over {
			t.Error("removed, and the guest has it")
		}
		if got := l.ends(over); got != over {
			t.Fatalf("the machine's end: %v, want %v", got, over)
		}
		if err := l.remove("one", ""); (err == nil) != over && !is(err, errdefs.ErrNotFound) {
			t.Errorf("once more: %v", err)
		}
	}
}

// TestI11_ExecsThatDontEndAreGivenUp: and the machine goes on.
func TestI11_ExecsThatDontEndAreGivenUp(t *testing.T) {
	t.Parallel()
	l, c := hostilePod(t, 10*time.Millisecond)
	if err := l.exec("one", "e", streams{}); err != nil {
		t.Fatal(err)
	}
	c.unruly = true
	if err := l.kill("one", "e", uint32(agentclient.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if got := l.wait("one", "e"); got != 137 {
		t.Errorf("exit status %d", got)
	}
	if err := l.remove("one", "e"); err != nil {
		t.Error(err)
	}
	if l.machineOver() || l.state("one") != tasktypes.Status_RUNNING {
		t.Error("the container has gone with it")
	}
}

// TestI11_FiguresDontStallTheNode: containerd asks for those of all containers one after the other. The twin answers.
func TestI11_FiguresDontStallTheNode(t *testing.T) {
	t.Parallel()
	l, _ := hostilePod(t, time.Hour)
	all := []string{"one"}
	for i := range 5 {
		id := fmt.Sprint("more", i)
		l.running(id, podSpec("container", "pod"), streams{})
		all = append(all, id)
	}
	ask := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := l.s.Stats(ctx, &taskapi.StatsRequest{ID: id})
		return err
	}
	for _, id := range all {
		if err := ask(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for _, c := range l.m.containers {
		c.unruly = true
	}
	began := time.Now()
	for range 3 {
		for _, id := range all {
			if err := ask(id); err != nil { // the last ones are known
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if took := time.Since(began); took > 2*statsWait {
		t.Errorf("a pod's %d containers took %s", len(all), took)
	}
	late := l.running("late", podSpec("container", "pod"), streams{})
	late.unruly = true
	if err := ask("late"); !is(err, errdefs.ErrUnavailable) {
		t.Errorf("figures that were never told: %v", err)
	}
}

// TestI11_StatesDontWaitForTheGuest: containerd asks for the state of all tasks, too.
func TestI11_StatesDontWaitForTheGuest(t *testing.T) {
	t.Parallel()
	l, c := hostilePod(t, time.Hour)
	c.unruly = true
	ctx, cancel := context.WithCancel(t.Context())
	paused := make(chan error, 1)
	go func() {
		_, err := l.s.Pause(ctx, &taskapi.PauseRequest{ID: "one"})
		paused <- err
	}()
	for range 100 {
		time.Sleep(time.Millisecond)
		if got := l.state("one"); got != tasktypes.Status_RUNNING {
			t.Fatalf("state %v", got)
		}
	}
	cancel()
	if err := <-paused; err == nil {
		t.Error("it was paused")
	}
}

// TestOOMEventsAreOfThePodsOwn: containerd takes the name of any container of the node, and writes to its disk for each event.
func TestOOMEventsAreOfThePodsOwn(t *testing.T) {
	t.Parallel()
	l, _ := hostilePod(t, time.Hour)
	before := len(l.heard.topics(t, 4))
	for i := range 1000 {
		l.m.oom <- sandbox.ContainerEvent{ID: "another-pods", OOMKills: uint64(i + 1)}
		l.m.oom <- sandbox.ContainerEvent{ID: "pod", OOMKills: uint64(i + 1)}
		l.m.oom <- sandbox.ContainerEvent{ID: "one", OOMKills: uint64(i + 1)}
	}
	if err := l.kill("one", "", uint32(agentclient.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	l.wait("one", "")
	got := l.heard.topics(t, before+2)[before:]
	for !slices.Contains(got, "/tasks/exit") {
		got = l.heard.topics(t, before+len(got)+1)[before:]
	}
	oom := len(got) - 1
	if oom < 1 || oom > 2*oomBurst {
		t.Errorf("containerd got %d events of 3000", oom)
	}
	for _, e := range l.heard.all {
		if s := fmt.Sprint(e); strings.Contains(s, "another-pods") {
			t.Errorf("of another pod's container: %s", s)
		}
	}
}

// TestHugeSizesAreErrors, and none that become small ones.
func TestHugeSizesAreErrors(t *testing.T) {
	t.Parallel()
	const huge = "9223372036854775807"
	spec := podSpec(typeSandbox, "pod")
	spec.Annotations[annotationMemory], spec.Annotations[annotationCPUQuota], spec.Annotations[annotationCPUPeriod] = huge, huge, "1"
	s := nodesettings.New()
	if err := s.Read("settings", ""); err != nil {
		t.Fatal(err)
	}
	cfg, err := machineConfig("pod", spec, s)
	if err != nil || cfg.Memory < 1<<62 || cfg.CPUs < 1<<62 {
		t.Errorf("memory %d, %d processors, %v", cfg.Memory, cfg.CPUs, err)
	}
}

// TestMachinesHaveTheOOMScoreOfTheirContainers: what the shim starts inherits its own, with which the node's kernel would end the machine
// after nearly everything else.
func TestMachinesHaveTheOOMScoreOfTheirContainers(t *testing.T) {
	if name := os.Getenv(envEnter); name != "" {
		scoreGroup(t, controlGroup(name))
		return
	}
	if os.Getuid() != 0 {
		t.Skip("control groups need root")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMachinesHaveTheOOMScoreOfTheirContainers$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/msb-test-oom-%d", envEnter, os.Getpid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func scoreGroup(t *testing.T, g controlGroup) {
	t.Helper()
	const shims = "-998"
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(shims), 0); err != nil {
		t.Skip(err)
	}
	leave, err := g.enter()
	if err != nil {
		t.Fatal(err)
	}
	vmm := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := vmm.Start(); err != nil {
		t.Fatal(err)
	}
	score := func(of any) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%v/oom_score_adj", of))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	p := &pod{group: g}
	if got := score(vmm.Process.Pid); got != shims { // the attack
		t.Errorf("before: %s", got)
	}
	number := func(n int) *int { return &n }
	for _, x := range []struct {
		adjust *int
		want   string
	}{{nil, shims}, {number(-997), "-997"}, {number(1000), "1000"}, {number(3), "1000"}} {
		if err := p.oomScore(x.adjust); err != nil {
			t.Error(err)
		}
		if got := score(vmm.Process.Pid); got != x.want {
			t.Errorf("the machine has %s, want %s", got, x.want)
		}
		if got := score("self"); got != shims {
			t.Errorf("the shim has %s", got)
		}
	}
	_ = vmm.Process.Signal(syscall.SIGKILL)
	_ = vmm.Wait() // it was killed
	if err := leave(); err != nil {
		t.Error(err)
	}
}

// TestI13_KillsWhileAMachineBootsLeaveNothing: its directory isn't known then, and its group is.
func TestI13_KillsWhileAMachineBootsLeaveNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var during left
	boot := l.s.boot
	l.s.boot = func(ctx context.Context, cfg sandbox.Config, netns string) (machine, string, error) {
		var err error
		if during, err = readLeft(l.bundle("one")); err != nil {
			t.Error(err)
		}
		return boot(ctx, cfg, netns)
	}
	if err := l.create("one", baseSpec(), streams{}); err != nil {
		t.Fatal(err)
	}
	if !during.Booting || during.Home == "" {
		t.Errorf("a shim that is killed meanwhile leaves no word: %+v", during)
	}
	failed := newLab(t)
	failed.s.boot = func(context.Context, sandbox.Config, string) (machine, string, error) { return nil, "", errUnruly }
	if err := failed.create("one", baseSpec(), streams{}); err == nil {
		t.Error("booted")
	}
	if after, err := readLeft(failed.bundle("one")); err != nil || after.Booting {
		t.Errorf("of a boot that failed: %+v, %v", after, err)
	}
	if after, err := readLeft(l.bundle("one")); err != nil || after.Booting || after.Machine == "" {
		t.Errorf("afterwards: %+v, %v", after, err)
	}
	run := filepath.Join(during.Home, "run/sb-0123456789ab") // of a supervisor that has gone
	if _, err := sandbox.OpenHome(during.Home); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "lock"), nil, 0o600), os.WriteFile(filepath.Join(run, "resolv.conf"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		during.Group = controlGroup(fmt.Sprintf("/msb-test-booting-%d", os.Getpid()))
		all, err := hierarchies()
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if err := os.Mkdir(filepath.Join(h.root, string(during.Group)), 0o755); err != nil {
				t.Skip(err)
			}
		}
	}
	if err := during.clean(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the machine's directory: %v", err)
	}
	if groups, err := filepath.Glob("/sys/fs/cgroup/*" + string(during.Group)); during.Group != "" && (err != nil || len(groups) > 0) {
		t.Errorf("left: %v, %v", groups, err)
	}
}

// TestI13_BusyRootsAreDetached: a guest that doesn't give its container's root back keeps no mount on the node.
func TestI13_BusyRootsAreDetached(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	bundle := realPath(t.TempDir())
	root, err := mountRoot(bundle, []mount.Mount{{Type: "tmpfs", Source: "tmpfs"}})
	if err != nil {
		t.Skip(err)
	}
	served, err := os.Create(filepath.Join(root, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = served.Close() }()
	if err := unix.Unmount(root, 0); !errors.Is(err, unix.EBUSY) { // the attack
		t.Errorf("unmounting it: %v, want busy", err)
	}
	if err := unmountRoot(bundle); err != nil {
		t.Error(err)
	}
	if all, err := nodeMounts(); err != nil || slices.ContainsFunc(all, func(m nodeMount) bool { return m.at == root }) {
		t.Errorf("it is left: %v", err)
	}
}

// TestI11_HungMountsOfOthersStallNoPod: a volume of another pod's, whose server doesn't answer any more, isn't looked at. The twin looks at
// all mounts of the node, and waits.
func TestI11_HungMountsOfOthersStallNoPod(t *testing.T) {
	ownMounts(t)
	own := realPath(t.TempDir())
	// waited tells whether do waited for a file system that doesn't answer.
	waited := func(limit time.Duration, do func(hung string)) bool {
		hung := realPath(t.TempDir())
		device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Mount("hung", hung, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device))
		}
		if err != nil {
			t.Skip(err)
		}
		var once sync.Once
		answer := func() { once.Do(func() { _ = unix.Close(device) }) }
		over := make(chan struct{})
		timer := time.AfterFunc(limit, func() { close(over); answer() })
		do(hung)
		ended := timer.Stop()
		answer()
		if err := unix.Unmount(hung, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if !ended {
			<-over
		}
		return !ended
	}
	p := &pod{settings: &settings{Kubelet: "/none", Records: "/none"}}
	if waited(patience, func(string) {
		if err := p.admits([]sandbox.ContainerMount{{Type: "bind", Source: own, Target: "/x"}}, "/none"); err != nil {
			t.Error(err)
		}
	}) {
		t.Error("another's mount was waited for")
	}
	if !waited(100*time.Millisecond, func(hung string) { _ = grants.Within(own, hung) }) {
		t.Error("the twin doesn't wait")
	}
}

// TestI13_SocketsGoBeforeTheBundle: containerd removes the bundle, which names the socket, when the shim has answered, and waits no longer
// than 3 seconds for its end. A pod that has a container keeps it.
func TestI13_SocketsGoBeforeTheBundle(t *testing.T) {
	t.Parallel()
	l, _ := hostilePod(t, time.Hour)
	socket := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.s.address = "unix://" + socket
	for _, id := range []string{"one", "pod"} {
		if _, err := l.s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); err != nil {
			t.Errorf("with %s: %v", id, err)
		}
		if err := l.kill(id, "", uint32(agentclient.SIGKILL)); err != nil {
			t.Fatal(err)
		}
		l.wait(id, "")
		if err := l.remove(id, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.s.Shutdown(t.Context(), &taskapi.ShutdownRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("afterwards: %v", err)
	}
}
