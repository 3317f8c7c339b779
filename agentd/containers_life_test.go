//go:build linux && !(vmtest && amd64)

package agentd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// left is what is there of containers: control groups, places, what they wrote.
func (p *pod) left(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{p.groups + "/container-*", "/run/msb/containers/*", "/run/msb/upper/containers/*"} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		all = append(all, found...)
	}
	return all
}

const waits = "echo ready; while read -r x; do echo $x; done; exit 9"

// TestEndedExecsLeaveTheContainer: a process of Exec whose caller gives up (a probe's timeout) is killed, and no other of the
// container, in whose control group it is. The contrast is the first process, whose call ends all of them.
func TestEndedExecsLeaveTheContainer(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		must(t, p.add(p.box("a", waits)))
		first := p.hold(t, agentclient.ContainerExec{ID: "a"})
		other := p.box("", waits).Process
		x := p.hold(t, agentclient.ContainerExec{ID: "a", ExecID: "probe", Process: &other})
		y := p.hold(t, agentclient.ContainerExec{ID: "a", ExecID: "shell", Process: &other})
		pids := func() int {
			_, pids, err := p.host.Containers().Stats(t.Context(), "a")
			must(t, err)
			return len(pids)
		}
		if n := pids(); n != 3 {
			t.Fatalf("%d processes are in the container's control group", n)
		}
		x.end()
		if r := <-x.done; !errors.Is(r.err, context.Canceled) {
			t.Errorf("the call that was given up: %+v", r)
		}
		until(t, "2 processes", func() bool { return pids() == 2 })
		for _, h := range []*held{first, y} {
			_, err := fmt.Fprintln(h.in, "still here")
			must(t, err)
			if got := h.line(t); got != "still here" {
				t.Errorf("got %q", got)
			}
		}
		again := agentclient.ContainerExec{ID: "a", ExecID: "probe", Process: &agentclient.ContainerProcess{Args: []string{"true"}, Env: other.Env}}
		until(t, "the id to be free again", func() bool { // a moment after the processes are gone
			got, err := p.host.Exec(t.Context(), agentclient.ExecOptions{Container: &again})
			return err == nil && got.Code == 0 && !got.OOMKilled
		})
		must(t, y.in.Close())
		if r := <-y.done; r.err != nil || r.st.Code != 9 {
			t.Errorf("%+v", r)
		}
		first.end()
		<-first.done
		until(t, "no process", func() bool { return pids() == 0 })
	})
}

// TestSignalsReachWhoTheyAreFor: the first process, one of Exec, or all.
func TestSignalsReachWhoTheyAreFor(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		// SIGHUP is ignored, and can't be trapped, where the tests run under nohup.
		const traps = "trap 'echo term' TERM; trap 'echo usr1' USR1; trap 'echo int' INT; echo ready; while :; do sleep 0.01; done"
		must(t, p.add(p.box("a", traps)))
		must(t, p.add(p.box("b", traps)))
		a, b := p.hold(t, agentclient.ContainerExec{ID: "a"}), p.hold(t, agentclient.ContainerExec{ID: "b"})
		shell := p.box("", traps).Process
		x := p.hold(t, agentclient.ContainerExec{ID: "a", ExecID: "x", Process: &shell})
		signal := func(id, exec string, sig agentclient.Signal, all bool) bool {
			there, err := p.host.Containers().Signal(t.Context(), id, exec, sig, all)
			must(t, err)
			return there
		}
		want := func(h *held, text string) {
			t.Helper()
			if got := h.line(t); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
		if !signal("a", "", agentclient.SIGTERM, false) || !signal("a", "x", agentclient.Signal(syscall.SIGUSR1), false) {
			t.Error("a process that runs has gone")
		}
		want(a, "term")
		want(x, "usr1")
		if !signal("a", "", agentclient.SIGINT, true) {
			t.Error("a container that runs has no processes")
		}
		want(a, "int")
		want(x, "int")
		if signal("a", "y", agentclient.SIGTERM, false) {
			t.Error("a process that never was is there")
		}
		for _, sig := range []agentclient.Signal{0, 65, 1 << 31} {
			if _, err := p.host.Containers().Signal(t.Context(), "a", "", sig, false); !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("signal %d: %v", sig, err)
			}
		}
		if !signal("a", "x", agentclient.SIGKILL, false) {
			t.Error("it has gone")
		}
		if r := <-x.done; r.st.Signal != agentclient.SIGKILL || r.st.Code != 137 {
			t.Errorf("%+v", r)
		}
		signal("a", "", agentclient.SIGKILL, true)
		if r := <-a.done; r.st.Signal != agentclient.SIGKILL {
			t.Errorf("%+v", r)
		}
		if signal("a", "", agentclient.SIGKILL, false) {
			t.Error("a killed process is there")
		}
		until(t, "no process to signal", func() bool { return !signal("a", "", agentclient.SIGTERM, true) })
		signal("b", "", agentclient.SIGTERM, false)
		want(b, "term") // and none of the signals for another container
	})
}

// TestPausedContainersStandStill until they are resumed, and another one goes on.
func TestPausedContainersStandStill(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		var all []*held
		for _, id := range []string{"a", "b"} {
			must(t, p.add(p.box(id, waits)))
			all = append(all, p.hold(t, agentclient.ContainerExec{ID: id}))
		}
		must(t, p.host.Containers().Pause(t.Context(), "a", false))
		for n, want := range []string{"1", "0"} {
			b, err := os.ReadFile(fmt.Sprintf("%s/container-%d/cgroup.freeze", p.groups, n+1))
			if err != nil || strings.TrimSpace(string(b)) != want {
				t.Errorf("container %d: %q, %v", n+1, b, err)
			}
		}
		must(t, p.host.Containers().Pause(t.Context(), "a", true))
		for _, h := range all {
			_, err := fmt.Fprintln(h.in, "on")
			must(t, err)
			h.line(t)
		}
	})
}

// TestDeletedContainersLeaveNothing: processes, control group, mounts, files; their number is no other's, their id is free. So
// with one that could not be made, whatever it is that fails.
func TestDeletedContainersLeaveNothing(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		containers := p.host.Containers()
		mounts := func() int {
			b, err := os.ReadFile("/proc/thread-self/mountinfo")
			must(t, err)
			return strings.Count(string(b), " /run/msb/")
		}
		before := mounts()
		host := t.TempDir()
		cfg := p.box("a", "mkdir -p /sys/fs; echo x > /written; "+waits)
		cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "bind", Source: host, Target: "/host"}, agentclient.ContainerMount{Type: "tmpfs", Target: "/shared", Shared: "s"})
		must(t, p.add(cfg))
		h := p.hold(t, agentclient.ContainerExec{ID: "a"})
		if got := len(p.left(t)); got != 3 {
			t.Errorf("a container has %d: %q", got, p.left(t))
		}
		if err := p.add(cfg); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second one of that id: %v", err)
		}
		must(t, containers.Delete(t.Context(), "a"))
		if r := <-h.done; r.err == nil && r.st.Signal != agentclient.SIGKILL {
			t.Errorf("%+v", r)
		}
		shared := mounts() - before // the shared tmpfs stays
		if left := p.left(t); len(left) > 0 || len(p.serving) > 0 || shared != 1 {
			t.Errorf("left %q, served %v, %d mounts", left, p.serving, shared)
		}
		must(t, containers.Delete(t.Context(), "a"))
		if got := p.run(t, p.box("a", "cat /written; grep -c : /proc/self/cgroup >/dev/null; sed -n 's/^0:://p' /proc/self/cgroup")); got != "cat: can't open '/written': No such file or directory\n/\n" {
			t.Errorf("the next of that id: %q", got)
		}
		for name, change := range map[string]func(*agentclient.ContainerConfig){
			"mounts[1]": func(c *agentclient.ContainerConfig) {
				c.Mounts = append(c.Mounts, agentclient.ContainerMount{Type: "bind", Source: filepath.Join(p.root, "bin/busybox"), Target: "/bin"})
			},
			"mounts[2]": func(c *agentclient.ContainerConfig) {
				c.Mounts = append(c.Mounts, agentclient.ContainerMount{Type: "bind", Source: host, Target: "/ok"},
					agentclient.ContainerMount{Type: "tmpfs", Target: "/shared", Shared: "s", SubPath: strings.Repeat("x", 300)})
			},
			"resources": func(c *agentclient.ContainerConfig) { c.Resources.Unified = map[string]string{"memory.none": "1"} },
			"sysctl":    func(c *agentclient.ContainerConfig) { c.Sysctls = map[string]string{"net.none": "1"} },
			"no /proc": func(c *agentclient.ContainerConfig) {
				c.Mounts = []agentclient.ContainerMount{{Type: "bind", Source: host, Target: "/proc/sys/net"}}
				c.Sysctls = map[string]string{"net.file": "1"}
				must(t, os.WriteFile(filepath.Join(host, "file"), nil, 0o600))
			},
		} {
			bad := p.box("a", "true")
			change(&bad)
			if err := p.add(bad); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if left := p.left(t); len(left) > 0 || len(p.serving) > 0 || mounts()-before != shared {
				t.Errorf("%s: left %q, served %v, %d mounts", name, left, p.serving, mounts()-before-shared)
			}
		}
		if b, err := os.ReadFile(filepath.Join(host, "file")); err != nil || len(b) > 0 {
			t.Errorf("a sysctl was written to %q, %v", b, err)
		}
		// What another machine's boot left is removed before the first one, and by no later one.
		must(t, os.MkdirAll("/run/msb/upper/containers/77", 0o755))
		p.run(t, p.box("a", "true"))
		if left := p.left(t); len(left) != 1 {
			t.Errorf("left %q", left)
		}
		p.server.containers.last = 0
		p.run(t, p.box("a", "true"))
		if left := p.left(t); len(left) != 0 {
			t.Errorf("left %q", left)
		}
	})
}

// TestContainersEndAsTheyDid: exit codes, signals, programs that can't be started, starts that come twice or too late.
func TestContainersEndAsTheyDid(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		for want, args := range map[string][]string{
			"3 0 0": {"sh", "-c", "exit 3"}, "143 15 0": {"sh", "-c", "kill -TERM $$; trap - TERM; exec sh -c 'kill -9 $$'"}, "127 0 1": {"none"}, "126 0 2": {"/proc/version"}, "127 0 1 ": {"/bin/none"},
		} {
			cfg := p.box("a", "")
			cfg.Process.Args = []string{"sh", "-c", waits}
			must(t, p.add(cfg))
			h := p.hold(t, agentclient.ContainerExec{ID: "a"})
			c := cfg.Process
			c.Args = args
			if strings.HasPrefix(want, "143") {
				c.Args = []string{"sh", "-c", "kill -TERM $$"}
			}
			got := p.process(t, agentclient.ContainerExec{ID: "a", ExecID: "x", Process: &c})
			if text := fmt.Sprint(got.Code, got.Signal, int(got.StartError)); text != strings.TrimSpace(want) {
				t.Errorf("%q: %s, want %s", args, text, want)
			}
			if _, err := p.host.Exec(t.Context(), agentclient.ExecOptions{Container: &agentclient.ContainerExec{ID: "a"}}); !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("a second start: %v", err)
			}
			must(t, h.in.Close())
			if r := <-h.done; r.st.Code != 9 {
				t.Errorf("%+v", r)
			}
			if _, err := p.host.Exec(t.Context(), agentclient.ExecOptions{Container: &agentclient.ContainerExec{ID: "a", ExecID: "y", Process: &c}}); !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("an exec after the end: %v", err)
			}
			must(t, p.host.Containers().Delete(t.Context(), "a"))
			if _, err := p.host.Exec(t.Context(), agentclient.ExecOptions{Container: &agentclient.ContainerExec{ID: "a"}}); err == nil {
				t.Error("a container that was deleted starts")
			}
		}
		cfg := p.box("a", "true")
		cfg.Process.Args = []string{"none"}
		must(t, p.add(cfg))
		if got := p.process(t, agentclient.ContainerExec{ID: "a"}); got.Code != 127 || got.StartError != agentclient.NotFound {
			t.Errorf("%+v", got)
		}
	})
}

// TestContainersShareTheNetworkAlone: host names, processes, mounts and IPC are each one's own.
func TestContainersShareTheNetworkAlone(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		for _, id := range []string{"a", "b"} {
			cfg := p.box(id, waits)
			cfg.Hostname, cfg.Sysctls = "host-"+id, map[string]string{"kernel.shmmni": map[string]string{"a": "11", "b": "22"}[id]}
			cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/m"})
			must(t, p.add(cfg))
			p.hold(t, agentclient.ContainerExec{ID: id})
			p.sh(t, id, "echo "+id+" > /m/file; echo "+id+" > /root-file")
		}
		for id, n := range map[string]string{"a": "11", "b": "22"} {
			got := p.sh(t, id, "hostname; cat /proc/sys/kernel/shmmni /m/file /root-file; test $$ != 1 && ls -d /proc/[0-9]* | wc -l; sed -n 's/^0:://p' /proc/self/cgroup")
			if want := "host-" + id + "\n" + n + "\n" + id + "\n" + id + "\n"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n/\n") {
				t.Errorf("got %q, want %q", got, want)
			}
			ours, err := os.Readlink("/proc/self/ns/net")
			must(t, err)
			if got := p.sh(t, id, "readlink /proc/self/ns/net"); strings.TrimSpace(got) != ours {
				t.Errorf("the network is %s, not %s", got, ours)
			}
		}
		if all, err := os.ReadDir(p.root); err != nil || len(all) != 2 && len(all) != 1 {
			t.Errorf("the image has %v, %v", all, err)
		}
		var uts unix.Utsname
		must(t, unix.Uname(&uts))
		if name := unix.ByteSliceToString(uts.Nodename[:]); strings.HasPrefix(name, "host-") {
			t.Error("the agent's host name is ", name)
		}
	})
}

// TestContainersOfAMachineTrustItsCA in its first process and in others; without a CA nothing is added.
func TestContainersOfAMachineTrustItsCA(t *testing.T) {
	for name, opts := range map[string]agentclient.Options{"with": {CAPEM: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), TrustEnv: true}, "without": {}} {
		t.Run(name, func(t *testing.T) {
			onMachine(t, opts, func(t *testing.T, p *pod) {
				must(t, os.MkdirAll(filepath.Join(p.root, "etc/ssl"), 0o755), os.WriteFile(filepath.Join(p.root, "etc/ssl/cert.pem"), []byte("image\n"), 0o644))
				want := "image\n\n"
				if len(opts.CAPEM) > 0 {
					want = "image\n" + string(opts.CAPEM) + "/etc/ssl/cert.pem\n"
				}
				const line = "cat /etc/ssl/cert.pem; echo $SSL_CERT_FILE"
				must(t, p.add(p.box("a", waits)))
				p.hold(t, agentclient.ContainerExec{ID: "a"})
				if got := p.run(t, p.box("b", line)); got != want {
					t.Errorf("the first process: %q", got)
				}
				if got := p.sh(t, "a", line); got != want {
					t.Errorf("another: %q", got)
				}
			})
		})
	}
}

// TestI11_ContainersAreBounded: their number, and that of processes of Exec in one.
func TestI11_ContainersAreBounded(t *testing.T) {
	s := &containerServer{all: map[string]*container{}, busy: map[string]chan struct{}{}, last: 1}
	var err error
	for n := 0; err == nil; n++ {
		if _, err = s.reserve(fmt.Sprint("c", n)); err != nil && n != agentpb.MaxContainers {
			t.Errorf("%d containers: %v", n, err)
		}
	}
	s.settle("c0", nil)
	if number, err := s.reserve("again"); err != nil || number != agentpb.MaxContainers+2 {
		t.Errorf("number %d, %v", number, err)
	}
	c := &container{execs: map[string]*workload.Process{}}
	for err = nil; err == nil; {
		if err = c.reserve(fmt.Sprint("x", len(c.execs))); err != nil && len(c.execs) != agentpb.MaxContainerExecs {
			t.Errorf("%d processes: %v", len(c.execs), err)
		}
	}
	delete(c.execs, "x0")
	must(t, c.reserve("again"))
	if err := c.reserve("again"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second process of an id: %v", err)
	}
	for _, bad := range []string{"", "-a", ".", "..", "a/b", "a b", "a\x00", strings.Repeat("a", 129)} {
		if _, err := s.reserve(bad); err == nil {
			t.Errorf("%q is an id", bad)
		}
	}
	must(t, checkID("container", strings.Repeat("a", 128)), checkID("exec", "0_.-Z"))

}

// TestFiguresAreOfTheContainersGroup as the kernel's files say, of which ordinary ones take the place here; what isn't there is
// left out. That the kernel killed for lack of memory is said at the end of the first process alone: it may have been another
// that it killed when one of Exec ends.
func TestFiguresAreOfTheContainersGroup(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		must(t, p.add(p.box("a", waits)))
		first := p.hold(t, agentclient.ContainerExec{ID: "a"})
		group := p.groups + "/container-1"
		must(t, unix.Mount("tmpfs", group, "tmpfs", 0, ""))
		for file, text := range map[string]string{
			"memory.stat": "anon 5\nfile 6\nodd\n", "cpu.stat": "usage_usec 7\nnr_throttled x\n", "memory.events": "oom 3\noom_kill 8\n", "memory.current": "9\n",
			"memory.peak": "10\n", "memory.max": "max\n", "pids.current": "11\n", "pids.max": "12\n", "cgroup.procs": "30\n4\n",
		} {
			must(t, os.WriteFile(filepath.Join(group, file), []byte(text), 0o600))
		}
		st, pids, err := p.host.Containers().Stats(t.Context(), "a")
		must(t, err)
		if want := (agentclient.ContainerStats{
			Memory: map[string]uint64{"anon": 5, "file": 6}, CPU: map[string]uint64{"usage_usec": 7}, MemoryEvents: map[string]uint64{"oom": 3, "oom_kill": 8},
			MemoryCurrent: 9, MemoryPeak: 10, MemoryLimit: 1<<64 - 1, PIDsCurrent: 11, PIDsLimit: 12,
		}); !reflect.DeepEqual(st, want) || !slices.Equal(pids, []uint32{4, 30}) {
			t.Errorf("got %+v, %v, want %+v", st, pids, want)
		}
		must(t, p.host.Containers().Update(t.Context(), "a", agentclient.ContainerResources{
			MemoryBytes: 99, CPUWeight: 98, CPUQuota: 3 * time.Millisecond, CPUPeriod: 50 * time.Millisecond, PIDs: 97, Unified: map[string]string{"memory.high": "96"},
		}))
		for file, want := range map[string]string{"memory.max": "99", "cpu.weight": "98", "cpu.max": "3000 50000", "pids.max": "97", "memory.high": "96"} {
			if b, err := os.ReadFile(filepath.Join(group, file)); string(b) != want {
				t.Errorf("%s: %q, %v", file, b, err)
			}
		}
		shell := p.box("", "exit 5").Process
		if got := p.process(t, agentclient.ContainerExec{ID: "a", ExecID: "x", Process: &shell}); got.Code != 5 || got.OOMKilled {
			t.Errorf("a process of Exec: %+v", got)
		}
		must(t, first.in.Close())
		if r := <-first.done; r.st.Code != 9 || !r.st.OOMKilled {
			t.Errorf("the first process: %+v", r)
		}
		must(t, unix.Unmount(group, 0))
		for what, err := range map[string]error{
			"update": p.host.Containers().Update(t.Context(), "b", agentclient.ContainerResources{}), "pause": p.host.Containers().Pause(t.Context(), "b", false),
			"signal": func() error {
				_, err := p.host.Containers().Signal(t.Context(), "b", "", agentclient.SIGKILL, true)
				return err
			}(),
			"limits": p.host.Containers().Update(t.Context(), "a", agentclient.ContainerResources{Unified: map[string]string{"cgroup.procs": "1"}}),
		} {
			if err == nil {
				t.Errorf("%s succeeds", what)
			}
		}
	})
}
