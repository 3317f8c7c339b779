//go:build containerdtest && kubernetestest

package shim_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// hostPaths is a pod with containers of which each mounts a directory of the node at /h.
func hostPaths(name string, paths map[string]string) string {
	var volumes, containers strings.Builder
	for c, path := range paths {
		fmt.Fprintf(&volumes, "    - {name: %s, hostPath: {path: %q}}\n", c, path)
		fmt.Fprintf(&containers, "    - {name: %[1]s, image: IMAGE, imagePullPolicy: Never, command: [/bin/sh, -c, \"cat /h/file; exec sleep 100000\"], volumeMounts: [{name: %[1]s, mountPath: /h, readOnly: %[2]t}]}\n",
			c, c != "programs")
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  runtimeClassName: msb\n  terminationGracePeriodSeconds: 1\n" +
		"  volumes:\n" + volumes.String() + "  containers:\n" + containers.String()
}

// testHostPaths: an attacker's pod names directories of the node by which it would leave its machine or read what is another's.
// Each is refused with words in the pod's events. The twin is a directory that is nobody's.
func testHostPaths(t *testing.T, c *cluster) {
	s := c.in(t, "hostpaths")
	for _, dir := range []string{"plain", "records"} {
		if err := os.MkdirAll(c.file(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.write(t, "plain/file", "of the node\n")
	if err := os.Symlink(c.file("kubelet/pods"), c.file("plain/link")); err != nil {
		t.Fatal(err)
	}
	attacks := map[string][2]string{
		"root": {"/", "the volumes of the node's pods at /h (/)"}, "proc": {"/proc/1", "a file system of the node's kernel"},
		"groups": {"/sys/fs/cgroup", "a file system of the node's kernel"}, "pods": {c.file("kubelet/pods"), "the volumes of the node's pods"},
		"link":    {c.file("plain/link"), "the volumes of the node's pods"},
		"records": {c.file("records"), "the captures and audit logs"}, "state": {home, "msb's own state"},
		"socket": {c.file("c.sock"), "neither a directory nor a regular file"}, "programs": {os.Getenv(envShim), "containerd-shim-msb-v1, writable,"},
	}
	paths := map[string]string{}
	for name, a := range attacks {
		paths[name] = a[0]
	}
	dots := strings.ReplaceAll(hostPaths("dots", map[string]string{"dots": c.file("plain") + "/../kubelet"}), "IMAGE", testImage)
	if r := s.cluster.try(dots, "-n", s.name, "apply", "-f", "-"); !strings.Contains(r.err, "must not contain '..'") { // says Kubernetes
		t.Errorf("a path with dots: %+v", r)
	}
	s.apply(t, hostPaths("attacker", paths))
	for name := range paths {
		want := attacks[name][1]
		c.until(t, "the events to say "+want, func() bool { return strings.Contains(s.events("attacker"), want) }, func() any { return s.events("attacker") })
	}
	if out := s.kubectl(t, "get", "pod", "attacker", "-o", "jsonpath={.status.containerStatuses[*].state.running}"); out != "" {
		t.Errorf("of the attacker's containers run: %s", out)
	}
	s.apply(t, hostPaths("friend", map[string]string{"plain": c.file("plain")}))
	s.ready(t, "friend")
	s.eventually(t, "of the node", "logs", "friend")
}
