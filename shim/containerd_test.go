//go:build containerdtest

package shim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestContainerdRefuses: what can't be honoured is refused by name, by a real containerd's request, and leaves nothing. The
// twin of each is TestContainerdRunsAsRuncDoes, which asks for none of it.
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

// isClean waits until nothing of msb is left: no shim, no machine, no mount, no directory, no control group.
func (n *node) isClean(t *testing.T) {
	t.Helper()
	left := func() (all []string) {
		for _, p := range n.processes() {
			all = append(all, p.line)
		}
		for _, dir := range []string{home + "/run", n.file("s"), n.file("state/io.containerd.runtime.v2.task/default")} {
			names, _ := filepath.Glob(dir + "/*")
			all = append(all, names...)
		}
		all = append(all, controlGroups("*")...)
		return append(all, n.mounts(t)...)
	}
	waitFor(t, "everything to be cleaned up", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// controlGroups are those of the node with a name below ctr's namespace, in any hierarchy.
func controlGroups(name string) (all []string) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		procs, _ := filepath.Glob(root + "/default/" + name + "/cgroup.procs")
		all = append(all, procs...)
	}
	return all
}

// aboutContainer prints what a container sees of how it was made, but for the variables that name msb's authority.
const aboutContainer = `
echo id; id; echo cwd; pwd; echo env; env | grep -v -E 'HOSTNAME|ca-certificates' | sort; echo host; hostname
echo caps; grep -E '^(Cap|NoNewPrivs|Groups|Seccomp:)' /proc/self/status; echo files; ulimit -n
echo root; ls -ld / /bin /tmp /owned | awk '{print $1, $3, $4, $NF}'; touch /written && cat /written
echo masked; cat /proc/kcore 2>/dev/null | wc -c; echo x 2>/dev/null > /proc/sys/kernel/domainname || echo read-only
echo first; echo $$; tr '\0' ' ' < /proc/1/cmdline | cut -c 1-10; echo mounts
awk '{print $2, $3}' /proc/mounts | grep -E '^/(proc|sys|dev|dev/pts|dev/mqueue|dev/shm|run|data|one) ' | grep -v -E '^/(data|one) ' | sort
echo volume; cat /data/file /one; echo no 2>/dev/null > /data/new || echo read-only; cat /rw/file; echo back > /rw/back
echo devices; ls /dev | grep -v -E 'console|core' | tr '\n' ' '; echo; echo shell; tty; exit 42
`

// TestContainerdRunsAsRuncDoes: the same command, flags and image give the same output and exit code.
func TestContainerdRunsAsRuncDoes(t *testing.T) {
	n := startNode(t)
	for _, dir := range []string{"data", "rw"} {
		if err := os.Mkdir(n.file(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		n.write(t, dir+"/file", "of the node\n")
		if err := os.Chmod(n.file(dir+"/file"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{
		"--rm", "--user", "1000:1000", "--cwd", "/tmp", "--env", "A=b c", "--hostname", "web", "--rlimit-nofile", "333:444", "--cap-drop", "CAP_KILL", "--memory-limit", "67108864",
		"--mount", "type=bind,src=" + n.file("data") + ",dst=/data,options=rbind:ro",
		"--mount", "type=bind,src=" + n.file("data/file") + ",dst=/one,options=bind:ro",
		"--mount", "type=bind,src=" + n.file("rw") + ",dst=/rw,options=rbind:rw",
	}
	var got [2]result
	for i, runtime := range []string{"runc", "msb"} {
		for _, user := range []string{"1000:1000", "0:0"} {
			flags[2] = user
			r := n.try(n.run(runtime, slices.Concat(flags, []string{testImage, "like", "/bin/sh", "-c", aboutContainer})...)...)
			got[i].out, got[i].err, got[i].code = got[i].out+r.out, got[i].err+r.err, got[i].code+r.code
			if user != "0:0" {
				continue
			}
			if b, err := os.ReadFile(n.file("rw/back")); err != nil || string(b) != "back\n" {
				t.Errorf("%s: what the container wrote to the node's directory: %q, %v", runtime, b, err)
			}
			_ = os.Remove(n.file("rw/back"))
		}
	}
	if got[0].code != 84 || got[1].code != 84 {
		t.Errorf("exit codes %d and %d, want 84\n%s\n%s", got[0].code, got[1].code, got[0].err, got[1].err)
	}
	if diff := lineDiff(got[0].out, got[1].out); diff != "" {
		t.Errorf("runc (-) and msb (+) differ:\n%s\nmsb's stderr: %s", diff, got[1].err)
	}
	n.isClean(t)
}

// lineDiff shows the lines that differ, by their place.
func lineDiff(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out strings.Builder
	for i := range max(len(x), len(y)) {
		l, r := "", ""
		if i < len(x) {
			l = x[i]
		}
		if i < len(y) {
			r = y[i]
		}
		if l != r {
			fmt.Fprintf(&out, "-%s\n+%s\n", l, r)
		}
	}
	return out.String()
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
	n.must(t, n.run("msb", "-d", testImage, "victim", "/bin/sleep", "1000")...)
	if err := syscall.Kill(n.shimPID(t, "victim"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "containerd to notice", func() bool { return !strings.Contains(n.try("tasks", "ls").out, "RUNNING") })
	n.try("tasks", "delete", "victim") // containerd may have done so itself
	n.must(t, "containers", "rm", "victim")
	n.isClean(t)
}
