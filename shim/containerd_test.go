//go:build containerdtest

package shim_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestContainerdRefuses: what can't be honoured is refused by name, by a real containerd's request, and leaves nothing.
func TestContainerdRefuses(t *testing.T) {
	n := startNode(t)
	n.write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\n")
	n.write(t, "runc.toml", "surprise = 1\n")
	for i, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--net-host"}, "hostNetwork (no network namespace) can't be honoured; "},
		{[]string{"--with-ns", "pid:/proc/1/ns/pid"}, "shareProcessNamespace"},
		{[]string{"--device", "/dev/null"}, "devices of the node (/dev/null)"},
		{[]string{"--privileged"}, "privileged (every device of the node)"},
		{[]string{"--seccomp"}, "a seccomp profile can't be honoured; "},
		{[]string{"--cpuset-cpus", "0"}, "cpuset"},
		{[]string{"--rootfs-propagation", "rshared"}, "rootfsPropagation rshared"},
		{[]string{"--mount", "type=nfs,src=/tmp,dst=/mnt"}, "the type nfs of the mount at /mnt"},
		{[]string{"--mount", "type=bind,src=/tmp,dst=/mnt,options=rbind:rshared"}, "the option rshared of the mount at /mnt"},
		{[]string{"--annotation", "msb.dev/policy=version = 1\nsurprise = 2\n"}, "msb.dev/policy:2:1: surprise: unknown key"},
		{[]string{"--annotation", "msb.dev/policy=version = 1\n[[egress.deny]]\nhosts = [\"a.example\"]\n[dns]\nservers = [\"udp://192.0.2.1\"]\n"}, "beyond the node's floor"},
		{[]string{"--annotation", "msb.dev/capture=/etc/x"}, `write "on" or "off"`},
		{[]string{"--runtime-config-path", n.file("runc.toml")}, "unknown key surprise"},
	} {
		id := fmt.Sprintf("c%d", i)
		r := n.try(n.run("msb", slices.Concat(c.flags, []string{"--rm", testImage, id, "true"})...)...)
		if r.code == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: exit code %d, want %q, got %s%s", c.flags, r.code, c.want, r.out, r.err)
		}
		n.try("containers", "rm", id)
	}
	n.isClean(t)
}

// isClean waits until nothing of msb is left: no shim, no machine, no mount, no directory.
func (n *node) isClean(t *testing.T) {
	t.Helper()
	left := func() (all []string) {
		for _, p := range n.processes() {
			all = append(all, p.line)
		}
		for _, dir := range []string{"msb/run", "s", "state/io.containerd.runtime.v2.task/default"} {
			names, _ := filepath.Glob(n.file(dir + "/*"))
			all = append(all, names...)
		}
		return append(all, n.mounts(t)...)
	}
	waitFor(t, "everything to be cleaned up", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// shimPID is the process that serves a pod's socket.
func (n *node) shimPID(t *testing.T, id string) int {
	t.Helper()
	for _, p := range n.processes() {
		if strings.Contains(p.line, "containerd-shim-msb-v1") && strings.Contains(p.line, "-id "+id+" ") && !strings.Contains(p.line, "__") {
			return p.pid
		}
	}
	t.Fatalf("no shim of %s among %v", id, n.processes())
	return 0
}

// TestContainerdShimIsKilled: its machine dies with it, containerd hears of it, and nothing is left on the node.
func TestContainerdShimIsKilled(t *testing.T) {
	n := startNode(t)
	n.must(t, n.run("msb", "-d", "--annotation", "io.kubernetes.cri.container-type=sandbox", "--annotation", "io.kubernetes.cri.sandbox-id=victim", testImage, "victim", "/not/there")...)
	if err := syscall.Kill(n.shimPID(t, "victim"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "containerd to notice", func() bool { return !strings.Contains(n.try("tasks", "ls").out, "RUNNING") })
	n.try("tasks", "delete", "victim") // containerd may have done so itself
	n.must(t, "containers", "rm", "victim")
	n.isClean(t)
}
