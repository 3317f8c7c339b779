//go:build containerdtest

package shim_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// keepSecret writes a Secret's volume as the kubelet's atomic writer does: a new directory, and a link that is replaced.
func (n *node) keepSecret(t *testing.T, version, value string) {
	t.Helper()
	dir := n.file("kubelet/pods/u1/volumes/kubernetes.io~secret/api")
	if err := os.MkdirAll(dir+"/.."+version, 0o700); err != nil {
		t.Fatal(err)
	}
	n.write(t, "kubelet/pods/u1/volumes/kubernetes.io~secret/api/.."+version+"/token", value)
	_ = os.Symlink("..data/token", dir+"/token")
	if err := os.Symlink(".."+version, dir+"/..new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/..new", dir+"/..data"); err != nil {
		t.Fatal(err)
	}
}

// TestContainerdSecrets: a Kubernetes Secret that a pod's policy names is sent to its host and is nowhere in the guest; a
// changed one is followed. The twin is a Secret that the policy doesn't name, which the guest has as from any runtime.
func TestContainerdSecrets(t *testing.T) {
	n := startNode(t)
	const first, second = "first-value-of-the-secret-4711", "second-value-of-the-secret-0815"
	n.keepSecret(t, "1", first)
	b, err := os.ReadFile(n.file("shim.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "shim.toml", string(b)+fmt.Sprintf("kubelet = %q\n", n.file("kubelet")))
	const egress = "version = 1\n[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\n[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n"
	n.write(t, "floor.toml", egress)
	n.write(t, "resolv.conf", "nameserver 192.0.2.53\n")
	policy := egress + "[secrets.KEY]\nfrom = \"file:api/token\"\nhosts = [\"echo.msb.internal\"]\nin = [\"header:Authorization\"]\n"
	volume := "type=bind,src=" + n.file("kubelet/pods/u1/volumes/kubernetes.io~secret/api") + ",dst=/secret,options=rbind:ro"
	pod := func(name, kind, id string, args ...string) {
		flags := []string{"-d", "--annotation", "io.kubernetes.cri.container-type=" + kind, "--annotation", "io.kubernetes.cri.sandbox-id=" + name}
		if kind == "sandbox" {
			flags = append(flags, "--annotation", "io.kubernetes.cri.sandbox-uid=u1")
			if name == "named" {
				flags = append(flags, "--annotation", "msb.dev/policy="+policy)
			}
		}
		// The value is in the container's environment, too, as from a secretKeyRef of the same name.
		flags = append(flags, "--env", "KEY="+first, "--mount", volume, "--mount", "type=bind,src="+n.file("resolv.conf")+",dst=/etc/resolv.conf,options=bind:ro", testImage, id)
		n.must(t, n.run("msb", slices.Concat(flags, args)...)...)
	}
	execs := 0
	exec := func(id, line string) string {
		execs++
		r := n.try("tasks", "exec", "--exec-id", fmt.Sprintf("e%d", execs), id, "/bin/sh", "-c", line)
		return r.out + r.err
	}
	const look = "cat /secret/token; env; cat /proc/*/environ; grep -r value-of-the-secret /etc /tmp /run /dev/shm /owned"
	for _, c := range []struct {
		name   string
		inside bool
	}{{"named", false}, {"plain", true}} {
		pod(c.name, "sandbox", c.name, "/not/there")
		pod(c.name, "container", c.name+"1", "/bin/sleep", "1000")
		if got := exec(c.name+"1", look); strings.Contains(got, first) != c.inside || strings.Contains(got, "KEY=msb_") == c.inside {
			t.Errorf("%s: the guest has\n%s", c.name, got)
		}
	}
	sent := func(value string) bool {
		return strings.Contains(exec("named1", "ask https://echo.msb.internal/"), fmt.Sprintf("%x", sha256.Sum256([]byte("Bearer "+value))))
	}
	waitFor(t, "the Secret to be sent", func() bool { return sent(first) })
	n.keepSecret(t, "2", second)
	waitFor(t, "the changed Secret to be sent", func() bool { return sent(second) })
	if got := exec("named1", look); strings.Contains(got, second) {
		t.Errorf("the guest has\n%s", got)
	}
	for _, name := range []string{"named", "plain"} {
		n.must(t, "tasks", "kill", "-s", "SIGKILL", name)
		waitFor(t, "the pod to end", func() bool { return n.status(name+"1") == "STOPPED" })
		for _, id := range []string{name + "1", name} {
			n.try("tasks", "delete", id)
			n.must(t, "containers", "rm", id)
		}
	}
	n.isClean(t)
}
