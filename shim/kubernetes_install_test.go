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

// installation is of msb on a node whose containerd doesn't know it. Its files are where the test has them.
type installation struct {
	*cluster
	image, tag     string
	prefix, dropIn string
	asked          string // a file that is there while the DaemonSet waits for containerd's restart
	bare           string // containerd's configuration without msb
}

// bareNode takes msb out of containerd's configuration until the test's end.
func (c *cluster) bareNode(t *testing.T) *installation {
	t.Helper()
	i := &installation{cluster: c, prefix: c.file("opt/msb"), dropIn: c.file("conf.d/msb.toml"), asked: c.file("restart")}
	i.image, i.tag, _ = strings.Cut(c.importNodeImage(t), ":")
	config, err := os.ReadFile(c.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	restart := func() { c.stop(t); c.start(t) }
	t.Cleanup(func() { c.write(t, "config.toml", string(config)); restart() })
	i.bare, _, _ = strings.Cut(strings.Replace(string(config), "imports = []\n", "", 1), "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb]")
	c.write(t, "config.toml", i.bare)
	restart()
	c.write(t, "restart.sh", fmt.Sprintf("#!/bin/sh\ntouch %[1]s\nwhile [ -e %[1]s ]; do sleep 0.1; done\n", i.asked))
	settings, err := os.ReadFile(c.file("shim.toml"))
	if err = errors.Join(err, os.Chmod(c.file("restart.sh"), 0o700), os.MkdirAll(c.file("overlay"), 0o700)); err != nil {
		t.Fatal(err)
	}
	c.write(t, "overlay/floor.toml", "version = 1\n")
	c.write(t, "overlay/shim.toml", strings.Replace(string(settings), fmt.Sprintf("floor = %q\n", c.file("floor.toml")), "", 1))
	return i
}

// installed looks at files of the node, and at containerd's configuration.
func (i *installation) installed(t *testing.T, want bool, files ...string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.Stat(f); (err == nil) != want {
			t.Errorf("%s: there is one: %v, want %v", f, err == nil, want)
		}
	}
	if b, err := os.ReadFile(i.file("config.toml")); err != nil || want != strings.HasPrefix(string(b), "imports = ['"+filepath.Dir(i.dropIn)) || !want && string(b) != i.bare {
		t.Errorf("containerd's configuration: %.200s, %v", b, err)
	}
}

// answer restarts containerd when the DaemonSet asks for it.
func (i *installation) answer(t *testing.T, what string) {
	t.Helper()
	i.until(t, "containerd to be restarted: "+what, func() bool { _, err := os.Stat(i.asked); return err == nil })
	i.stop(t)
	i.start(t)
	if err := os.Remove(i.asked); err != nil {
		t.Fatal(err)
	}
}

// ready waits for the DaemonSet, and looks at what it has installed.
func (i *installation) ready(t *testing.T) {
	t.Helper()
	i.answer(t, "installed")
	i.kubectl(t, "-n", "msb-system", "rollout", "status", "daemonset/msb-node", "--timeout="+slow.String())
	i.installed(t, true, i.prefix+"/bin/containerd-shim-msb-v1", i.dropIn)
}

// gone waits until the DaemonSet has taken everything away.
func (i *installation) gone(t *testing.T) {
	t.Helper()
	i.answer(t, "uninstalled")
	i.eventually(t, "", "-n", "msb-system", "get", "pods", "-o", "name")
}

// runsHere fails if pods' shims are not those that were installed.
func (i *installation) runsHere(t *testing.T) {
	t.Helper()
	shim := ""
	for _, p := range i.processes() {
		if strings.Contains(p.line, "containerd-shim-msb-v1 -namespace k8s.io ") {
			shim = p.line
		}
	}
	if !strings.HasPrefix(shim, i.prefix+"/bin/") {
		t.Errorf("the pod's shim is %s", shim)
	}
}

// testInstall: a node whose containerd doesn't know msb gets it by the DaemonSet of deploy/base, pods of the RuntimeClass run, and
// it is taken away again with the DaemonSet: from a node with a pod that runs, all but the files that its machine needs.
func testInstall(t *testing.T, c *cluster) {
	i := c.bareNode(t)
	dir := c.file("overlay")
	if err := os.CopyFS(dir+"/base", os.DirFS("../deploy/base")); err != nil {
		t.Fatal(err)
	}
	flags := fmt.Sprintf("--prefix=%s, --containerd-config=%s, --drop-in=%s, --restart=%s", i.prefix, c.file("config.toml"), i.dropIn, c.file("restart.sh"))
	c.write(t, "overlay/kustomization.yaml", strings.NewReplacer("FLAGS", flags, "IMAGENAME", i.image, "IMAGETAG", i.tag).Replace(overlay))
	s := c.in(t, "install")
	t.Cleanup(func() { c.kubectl(t, "apply", "-f", runtimeClass) }) // which goes with the DaemonSet
	t.Cleanup(func() { c.kubectl(t, "delete", "-k", dir, "--ignore-not-found", "--timeout="+slow.String()) })
	install := func() {
		t.Helper()
		c.kubectl(t, "apply", "-k", dir)
		i.ready(t)
	}
	uninstall := func() {
		t.Helper()
		c.kubectl(t, "-n", "msb-system", "delete", "daemonset", "msb-node", "--wait=false")
		i.gone(t)
	}

	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	c.until(t, "the pod's events to say that there is no runtime", func() bool { return strings.Contains(s.events("p"), `no runtime for "msb" is configured`) }, func() any { return s.events("p") })
	i.installed(t, false, i.prefix, i.dropIn)
	install()
	s.ready(t, "p")
	i.runsHere(t)
	if r := s.sh("p", "echo kept > /tmp/kept"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	before := s.kubectl(t, "get", "pod", "p", "-o", lifeOf)
	uninstall()
	i.installed(t, false, i.dropIn)
	refused := func() any { return s.sh("p", "true").err }
	c.until(t, "exec in a pod from before to be refused by containerd", func() bool { return strings.Contains(fmt.Sprint(refused()), `no runtime for "msb" is configured`) }, refused)
	if _, err := os.Stat(i.prefix + "/bin/msb"); err != nil {
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
	i.installed(t, false, i.prefix, i.dropIn)
}

const runtimeClass = "../deploy/base/runtimeclass.yaml"

// testChart: the same by the Helm chart, with the RuntimeClass, which helm makes and removes.
func testChart(t *testing.T, c *cluster) {
	i := c.bareNode(t)
	t.Cleanup(func() { c.kubectl(t, "apply", "-f", runtimeClass) })
	c.kubectl(t, "delete", "-f", runtimeClass, "--ignore-not-found")
	s := c.in(t, "chart")
	t.Cleanup(func() {
		c.kubectl(t, "delete", "namespace", "msb-system", "--ignore-not-found", "--timeout="+slow.String())
	})
	helm := func(args ...string) {
		t.Helper()
		cmd := inside(c.netns, append([]string{filepath.Join(os.Getenv(envAddons), "helm"), "--kubeconfig=" + c.pki.file("admin.conf"), "-n", "msb-system"}, args...)...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+c.file("helm"), "HELM_CONFIG_HOME="+c.file("helm"), "HELM_DATA_HOME="+c.file("helm"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %q: %v\n%s", args, err, out)
		}
	}
	helm("install", "msb", "../deploy/chart", "--create-namespace", "--set", "image.repository="+i.image, "--set", "image.tag="+i.tag, "--set", "prefix="+i.prefix,
		"--set", "containerd.config="+c.file("config.toml"), "--set", "containerd.dropIn="+i.dropIn, "--set", "containerd.restart="+c.file("restart.sh"),
		"--set-file", "floor="+c.file("overlay/floor.toml"), "--set-file", "settings="+c.file("overlay/shim.toml"))
	i.ready(t)
	s.plain(t, "p")
	i.runsHere(t)
	s.kubectl(t, "delete", "pod", "p", "--timeout="+slow.String())
	helm("uninstall", "msb")
	i.gone(t)
	i.installed(t, false, i.prefix, i.dropIn)
	if out := c.kubectl(t, "get", "runtimeclass", "-o", "name"); out != "" {
		t.Errorf("left: %s", out)
	}
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
