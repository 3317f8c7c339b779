package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	containerdshim "github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// A test whose process enters control groups, or changes directory, runs in a process of its own, with the name of a group for it.
const envAlone = "MSB_TEST_ALONE"

// alone runs the test in a process of its own, which gets the name of a control group. In the first process it returns "".
func alone(t *testing.T) (group string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("control groups need root")
	}
	if group := os.Getenv(envAlone); group != "" {
		return group
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/msb-test-%s-%d", envAlone, strings.ToLower(t.Name()), os.Getpid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return ""
}

// groupDirs are the directories of a control group that are there, in all hierarchies.
func groupDirs(t *testing.T, group string) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*" + group)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup" + group); err == nil {
		found = append(found, "/sys/fs/cgroup"+group)
	}
	return found
}

// ownGroups are the control groups of this process, by controller.
func ownGroups(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name := range strings.SplitSeq(f[1], ",") {
			all[name] = f[2]
		}
	}
	return all
}

// TestI14_PodsAreOnTheirOwnAccount: from the boot of its machine to the deletion of its last container, the pod's processes are in
// the control group that the kubelet named, in each hierarchy with limits. A machine that doesn't boot, or whose container isn't
// made, leaves no group. The twin is the process before that.
func TestI14_PodsAreOnTheirOwnAccount(t *testing.T) {
	group := alone(t)
	if group == "" {
		return
	}
	before := ownGroups(t)
	outside := func(when string) {
		t.Helper()
		if got := ownGroups(t); !equalMaps(got, before) {
			t.Errorf("%s the shim is in %v, was in %v", when, got, before)
		}
		if left := groupDirs(t, group); len(left) > 0 {
			t.Errorf("%s the groups %v are left", when, left)
		}
	}
	l := newLab(t)
	l.group = group
	l.fail = errors.New("no machine today")
	if err := l.create("one", baseSpec(), streams{}); err == nil {
		t.Error("a machine was booted")
	}
	outside("without a machine")

	l = newLab(t)
	l.group = group
	l.m.fail = errors.New("the guest says no")
	if err := l.create("one", baseSpec(), streams{}); err == nil || !l.machineOver() {
		t.Error("a container was made")
	}
	outside("without a container")

	l = newLab(t)
	l.group = group
	l.running("one", baseSpec(), streams{})
	in := 0
	for name, at := range ownGroups(t) {
		limits := slices.Contains([]string{"memory", "cpu", "cpuacct", "pids"}, name)
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			limits = name == ""
		}
		if limits != (at == group) {
			t.Errorf("with its machine the shim is in %s of %q", at, name)
		}
		if limits {
			in++
		}
	}
	if in == 0 {
		t.Error("no hierarchy has limits")
	}
	if left, err := readLeft(l.bundle("one")); err != nil || string(left.Group) != group {
		t.Errorf("left for cleaning: %+v, %v", left, err)
	}
	if err := errors.Join(l.kill("one", "", 9), l.removeAfter("one")); err != nil {
		t.Error(err)
	}
	outside("afterwards")

	ownMounts(t)
	const last = "/sys/fs/cgroup/pids"
	if err := errors.Join(unix.Mount(last, last, "", unix.MS_BIND, ""), unix.Mount("", last, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")); err != nil {
		return // the hierarchy is of version 2
	}
	l = newLab(t)
	l.group = group
	if err := l.create("one", baseSpec(), streams{}); err == nil || l.boots > 0 || !strings.Contains(err.Error(), group) {
		t.Errorf("a group that can't be made: %v", err)
	}
	if err := unix.Unmount(last, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	outside("without a group")
}

func (l *lab) removeAfter(id string) error {
	l.wait(id, "")
	return l.remove(id, "")
}

func equalMaps(a, b map[string]string) bool {
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestNothingIsLeftOfAKilledShim: what containerd runs when a shim was killed removes the container's root, the machine's directory,
// the pod's control group and the socket, and tells how the container ended. The twins are a socket that is served, a container whose
// end was recorded, and a bundle in which no shim wrote anything.
func TestNothingIsLeftOfAKilledShim(t *testing.T) {
	group := alone(t)
	if group == "" {
		return
	}
	ownMounts(t)
	dir := realPath(t.TempDir())
	bundle := func(id string) string { return filepath.Join(dir, "bundles", id) }
	for _, id := range []string{"one", "other", "none"} {
		if err := os.MkdirAll(filepath.Join(bundle(id), "rootfs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(bundle("other"))
	home, machine := filepath.Join(dir, "home"), filepath.Join(dir, "home/run/sb-0123456789ab")
	if _, err := sandbox.OpenHome(home); err != nil {
		t.Fatal(err)
	}
	hierarchies, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	exited := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		exited *leftExit
		served bool
		dies   time.Duration // its socket still answers for as long
		want   int
	}{{"killed while it ran", nil, false, 0, 137}, {"killed after the end", &leftExit{3, exited}, false, 0, 3}, {"dying", nil, false, 300 * time.Millisecond, 137}, {"served by another shim", nil, true, 0, 137}} {
		for _, h := range hierarchies {
			if err := os.MkdirAll(path.Join(h.root, group), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		socket := filepath.Join(dir, "s")
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if !c.served {
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			if c.dies == 0 {
				_ = listener.Close()
			} else {
				time.AfterFunc(c.dies, func() { _ = listener.Close() })
			}
		}
		err = errors.Join(
			os.MkdirAll(machine, 0o700), os.WriteFile(filepath.Join(machine, "lock"), nil, 0o600), // that no process holds
			unix.Mount("tmpfs", bundle("one")+"/rootfs", "tmpfs", 0, ""),
			os.WriteFile(filepath.Join(bundle("one"), addressFile), []byte("unix://"+socket), 0o600),
			left{Home: home, Machine: machine, Group: controlGroup(group), Exited: c.exited}.write(bundle("one")),
		)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		ctx := t.Context()
		if c.served { // containerd names the bundle, and this process is elsewhere
			ctx = context.WithValue(ctx, containerdshim.OptsKey{}, containerdshim.Opts{BundlePath: bundle("one")})
			t.Chdir("/")
		}
		got, err := NewManager().Stop(ctx, "one")
		if err != nil || got.ExitStatus != c.want {
			t.Errorf("%s: %v, exit status %d, want %d", c.name, err, got.ExitStatus, c.want)
		}
		if c.exited != nil && !got.ExitedAt.Equal(exited) || c.exited == nil && got.ExitedAt.Before(before) {
			t.Errorf("%s: the end is reported at %v", c.name, got.ExitedAt)
		}
		if root, err := mountRootOf(bundle("one") + "/rootfs"); err != nil || root != "" {
			t.Errorf("%s: the root is still mounted: %v", c.name, err)
		}
		if left := groupDirs(t, group); len(left) > 0 {
			t.Errorf("%s: the groups %v are left", c.name, left)
		}
		if _, err := os.Lstat(machine); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the machine's directory: %v", c.name, err)
		}
		if _, err := os.Lstat(socket); (err == nil) != c.served {
			t.Errorf("%s: the socket: %v", c.name, err)
		}
		_ = listener.Close()
		t.Chdir(bundle("other"))
	}
	if got, err := NewManager().Stop(t.Context(), "none"); err != nil || got.ExitStatus != 137 {
		t.Errorf("a bundle in which no shim wrote anything: %v, %+v", err, got)
	}
	if err := os.WriteFile(filepath.Join(bundle("none"), leftFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewManager().Stop(t.Context(), "none"); err == nil {
		t.Error("half a file is read")
	}
}

// TestRootsAreMountedAsTheSnapshotterSays, with their options, for as long as the container is there; one that isn't made leaves none.
func TestRootsAreMountedAsTheSnapshotterSays(t *testing.T) {
	ownMounts(t)
	l := newLab(t)
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "file"), []byte("of the image"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.rootfs = []*types.Mount{{Type: "bind", Source: from, Options: []string{"rbind", "ro"}}}
	root := filepath.Join(l.bundle("one"), "rootfs")
	mounted := func() bool {
		t.Helper()
		_, err := os.Stat(filepath.Join(root, "file"))
		return err == nil
	}
	l.m.fail = errors.New("the guest says no")
	if err := l.create("one", baseSpec(), streams{}); err == nil || mounted() {
		t.Errorf("%v, mounted: %v", err, mounted())
	}
	l.m.fail, l.m.over = nil, make(chan struct{})
	l.m = &fakeMachine{over: make(chan struct{}), oom: l.m.oom}
	if err := l.create("one", baseSpec(), streams{}); err != nil || !mounted() {
		t.Fatalf("%v, mounted: %v", err, mounted())
	}
	if got := l.m.containers[0].cfg.Root; got != root {
		t.Errorf("the guest's root is %s, want %s", got, root)
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a root that is mounted read-only: %v", err)
	}
	if err := l.kill("one", "", 9); err != nil {
		t.Fatal(err)
	}
	if l.wait("one", ""); !mounted() {
		t.Error("not mounted before it is deleted")
	}
	if err := l.remove("one", ""); err != nil || mounted() {
		t.Errorf("%v, mounted: %v", err, mounted())
	}
	// Of several mounts the second fails: the first one is undone.
	l = newLab(t)
	l.rootfs = []*types.Mount{{Type: "bind", Source: from, Options: []string{"rbind"}}, {Type: "none", Source: from}}
	root = filepath.Join(l.bundle("one"), "rootfs")
	if err := l.create("one", baseSpec(), streams{}); err == nil || !strings.Contains(err.Error(), "mounting the root") || mounted() || !l.machineOver() {
		t.Errorf("%v, mounted: %v", err, mounted())
	}
	if _, err := l.s.Delete(t.Context(), &taskapi.DeleteRequest{ID: "one"}); err == nil {
		t.Error("a container that wasn't made was deleted")
	}
}
