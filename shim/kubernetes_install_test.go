//go:build containerdtest && kubernetestest

package shim_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overlay is an operator's, of deploy/base: msb's files and containerd's are where the test has them.
const overlay = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: msb-system
resources: [base]
configMapGenerator:
  - {name: msb-node, behavior: replace, files: [floor.toml, shim.toml], options: {disableNameSuffixHash: true}}
images: [{name: msb-node, newName: IMAGENAME, newTag: IMAGETAG}]
patches:
  - target: {kind: DaemonSet}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/args, value: [FLAGS, run]}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/exec/command, value: [/msb-node, FLAGS, check]}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
`

// testInstall: a node whose containerd doesn't know msb gets it by the DaemonSet of deploy/base, pods of the RuntimeClass run, and
// it is taken away again with the DaemonSet: from a node with a pod that runs, all but the files that its machine needs.
func testInstall(t *testing.T, c *cluster) {
	image := c.importNodeImage(t)
	config, err := os.ReadFile(c.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	restart := func() { c.stop(t); c.start(t) }
	t.Cleanup(func() { c.write(t, "config.toml", string(config)); restart() })
	bare, _, _ := strings.Cut(strings.Replace(string(config), "imports = []\n", "", 1), "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb]")
	c.write(t, "config.toml", bare)
	restart()

	prefix, dropIn, asked := c.file("opt/msb"), c.file("conf.d/msb.toml"), c.file("restart")
	c.write(t, "restart.sh", fmt.Sprintf("#!/bin/sh\ntouch %[1]s\nwhile [ -e %[1]s ]; do sleep 0.1; done\n", asked))
	dir := c.file("overlay")
	settings, err := os.ReadFile(c.file("shim.toml"))
	err = errors.Join(err, os.Chmod(c.file("restart.sh"), 0o700), os.CopyFS(dir+"/base", os.DirFS("../deploy/base")))
	if err != nil {
		t.Fatal(err)
	}
	flags := fmt.Sprintf("--prefix=%s, --containerd-config=%s, --drop-in=%s, --restart=%s", prefix, c.file("config.toml"), dropIn, c.file("restart.sh"))
	name, tag, _ := strings.Cut(image, ":")
	c.write(t, "overlay/kustomization.yaml", strings.NewReplacer("FLAGS", flags, "IMAGENAME", name, "IMAGETAG", tag).Replace(overlay))
	c.write(t, "overlay/floor.toml", "version = 1\n")
	c.write(t, "overlay/shim.toml", strings.Replace(string(settings), fmt.Sprintf("floor = %q\n", c.file("floor.toml")), "", 1))

	s := c.in(t, "install")
	t.Cleanup(func() { c.kubectl(t, "delete", "-k", dir, "--ignore-not-found", "--timeout="+slow.String()) })
	installed := func(want bool, files ...string) {
		t.Helper()
		for _, f := range files {
			if _, err := os.Stat(f); (err == nil) != want {
				t.Errorf("%s: there is one: %v, want %v", f, err == nil, want)
			}
		}
		if b, err := os.ReadFile(c.file("config.toml")); err != nil || want != strings.HasPrefix(string(b), "imports = ['"+filepath.Dir(dropIn)) || !want && string(b) != bare {
			t.Errorf("containerd's configuration: %.200s, %v", b, err)
		}
	}
	answer := func(what string) { // to the DaemonSet's restart of containerd
		t.Helper()
		c.until(t, "containerd to be restarted: "+what, func() bool { _, err := os.Stat(asked); return err == nil })
		restart()
		if err := os.Remove(asked); err != nil {
			t.Fatal(err)
		}
	}
	install := func() {
		t.Helper()
		c.kubectl(t, "apply", "-k", dir)
		answer("installed")
		c.kubectl(t, "-n", "msb-system", "rollout", "status", "daemonset/msb-node", "--timeout="+slow.String())
		installed(true, prefix+"/bin/containerd-shim-msb-v1", dropIn)
	}
	uninstall := func() {
		t.Helper()
		c.kubectl(t, "-n", "msb-system", "delete", "daemonset", "msb-node", "--wait=false")
		answer("uninstalled")
		c.eventually(t, "", "-n", "msb-system", "get", "pods", "-o", "name")
	}

	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	c.until(t, "the pod's events to say that there is no runtime", func() bool { return strings.Contains(s.events("p"), `no runtime for "msb" is configured`) }, func() any { return s.events("p") })
	installed(false, prefix, dropIn)
	install()
	s.ready(t, "p")
	var shim string
	for _, p := range c.processes() {
		if strings.Contains(p.line, "containerd-shim-msb-v1 -namespace k8s.io ") {
			shim = p.line
		}
	}
	if !strings.HasPrefix(shim, prefix+"/bin/") {
		t.Errorf("the pod's shim is %s", shim)
	}
	if r := s.sh("p", "echo kept > /tmp/kept"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	before := s.kubectl(t, "get", "pod", "p", "-o", lifeOf)
	uninstall()
	installed(false, dropIn)
	refused := func() any { return s.sh("p", "true").err }
	c.until(t, "exec in a pod from before to be refused by containerd", func() bool { return strings.Contains(fmt.Sprint(refused()), `no runtime for "msb" is configured`) }, refused)
	if _, err := os.Stat(prefix + "/bin/msb"); err != nil {
		t.Errorf("of a machine that runs: %v", err)
	}
	install()
	kept := func() any { return s.sh("p", "cat /tmp/kept").out }
	c.until(t, "exec in a pod from before", func() bool { return kept() == "kept\n" }, kept)
	if after := s.kubectl(t, "get", "pod", "p", "-o", lifeOf); after != before {
		t.Errorf("the pod was %s, and is %s", before, after)
	}
	s.kubectl(t, "delete", "pod", "p", "--timeout="+slow.String())
	uninstall()
	installed(false, prefix, dropIn)
}

// importNodeImage imports what make node-image packs, and returns its name.
func (c *cluster) importNodeImage(t *testing.T) string {
	t.Helper()
	out := c.must(t, "-n", "k8s.io", "images", "import", "--local", filepath.Join(os.Getenv(envShim), "msb-node.tar"))
	for _, name := range strings.Fields(c.must(t, "-n", "k8s.io", "images", "ls", "-q")) {
		if strings.Contains(name, "/msb-node:") {
			return name
		}
	}
	t.Fatalf("no image msb-node: %s", out)
	return ""
}
