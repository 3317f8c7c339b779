//go:build containerdtest && kubernetestest

package shim_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

const onePod = `
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  containers:
    - name: httpd
      image: IMAGE
      imagePullPolicy: Never
      command: [/bin/sh, -c, "echo page > /tmp/index.html; echo started; exec httpd -f -p 127.0.0.1:8080 -h /tmp"]
      resources: {limits: {memory: 64Mi}}
`

// testPod: one pod's life by kubectl.
func testPod(t *testing.T, c *cluster) {
	s := c.in(t, "pod")
	s.apply(t, onePod)
	s.ready(t, "one")
	if out := s.kubectl(t, "get", "pod", "one", "-o", "jsonpath={.status.phase} {.spec.overhead.memory} {.status.podIP}"); !strings.HasPrefix(out, "Running 256Mi 10.213.7.") {
		t.Errorf("the pod: %s", out)
	}
	s.eventually(t, "started", "logs", "one")
	if r := s.sh("one", "uname -r; hostname; exit 3"); r.code != 3 || !strings.HasSuffix(r.out, "\none\n") || strings.HasPrefix(r.out, kernel(t)) {
		t.Errorf("exec: %+v", r)
	}
	if r := s.cluster.try("of stdin", "-n", s.name, "exec", "-i", "one", "--", "/bin/cat"); r.code != 0 || r.out != "of stdin" {
		t.Errorf("exec with a standard input: %+v", r)
	}
	big := strings.Repeat("0123456789abcde\n", 64<<10)
	c.write(t, "big", big)
	s.kubectl(t, "cp", c.file("big"), "one:/tmp/big")
	s.kubectl(t, "cp", "one:/tmp/big", c.file("back"))
	if b, err := os.ReadFile(c.file("back")); err != nil || string(b) != big {
		t.Errorf("cp there and back: %d bytes of %d, %v", len(b), len(big), err)
	}
	forward := inside(c.netns, append(c.kubectlArgs(), "-n", s.name, "port-forward", "pod/one", "18080:8080")...)
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	netns := "/run/netns/" + c.netns
	c.until(t, "port-forward", func() bool { return within(t, netns, func() string { return get("", "127.0.0.1:18080") }) == "page\n" })
	_ = forward.Process.Signal(syscall.SIGTERM)
	_ = forward.Wait()
	s.kubectl(t, "delete", "pod", "one", "--timeout="+slow.String())
	c.until(t, "nothing to be left", func() bool { return len(c.left(t)) == 0 }, func() any { return c.left(t) })
}

// kernel is the node's.
func kernel(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
