//go:build containerdtest && kubernetestest

package shim_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// envKubernetes is what make test-kubernetes sets: the directory of Kubernetes' programs.
const envKubernetes = "MSB_TEST_KUBERNETES"

// slow guards against hangs of a whole cluster, on two processors beside emulated guests.
const slow = 8 * time.Minute

// Addresses of a cluster, all in network namespaces of the test: there is no way to another machine.
const (
	nodeIP   = "10.214.0.1"
	worldIP  = "10.214.0.2"
	worldDNS = "10.97.0.53" // of pods, too
	metadata = "169.254.169.254"
	public   = "93.184.216.34" // of public.example
	services = "10.96.0.0/16"
	server   = "https://" + nodeIP + ":6443"
)

// ofCNI are the network namespaces of pods, of this cluster and of any other containerd's of the machine.
const ofCNI = "/run/netns/cni-*"

// cluster is a Kubernetes of one node. The node is this machine, in a network namespace of its own; a second namespace is
// the world outside, where the tests' servers are.
type cluster struct {
	*node
	runtime  cri.RuntimeServiceClient
	pki      *authority
	world    string
	programs map[string]*running
	others   []string // network namespaces of CNI's that a killed run has left, or another program's
}

// startCluster starts every part of a cluster, and waits until its node is ready.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv(envKubernetes) == "" {
		t.Fatalf("%s is not set: run make test-kubernetes", envKubernetes)
	}
	n, r := criNode(t)
	n.stop(t)
	name := filepath.Base(n.dir)
	others, _ := filepath.Glob(ofCNI)
	c := &cluster{node: n, runtime: r, world: name + "w", programs: map[string]*running{}, others: others}
	n.netns = name
	c.connect(t)
	c.keepTunables(t)
	c.group(t)
	c.certify(t)
	settings, err := os.ReadFile(n.file("shim.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "shim.toml", string(settings)+fmt.Sprintf("kubelet = %q\nnode = \"node\"\n", n.file("kubelet")))
	n.write(t, "kubelet.yaml", c.kubeletConfig())
	n.write(t, "resolv.conf", "nameserver "+worldDNS+"\n")
	t.Cleanup(func() { c.end(t) })
	n.start(t)
	for _, p := range []string{"etcd", "kube-apiserver"} {
		c.run(t, p)
	}
	c.eventually(t, "ok", "get", "--raw", "/readyz")
	for _, p := range []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"} {
		c.run(t, p)
	}
	c.eventually(t, "True", "get", "node", "node", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	c.kubectl(t, "apply", "-f", "../deploy/base/runtimeclass.yaml")
	c.eventually(t, "default", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	return c
}

// connect makes the two namespaces, and the link between them.
func (c *cluster) connect(t *testing.T) {
	t.Helper()
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	for _, ns := range []string{c.netns, c.world} {
		ip("netns add " + ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", ns).Run() })
		ip("-n " + ns + " link set lo up")
	}
	ip("-n " + c.netns + " link add world type veth peer name node netns " + c.world)
	ip("-n " + c.netns + " addr add " + nodeIP + "/24 dev world")
	ip("-n " + c.netns + " link set world up")
	ip("-n " + c.netns + " route add default via " + worldIP)
	ip("-n " + c.world + " addr add " + worldIP + "/24 dev node")
	ip("-n " + c.world + " link set node up")
	ip("-n " + c.world + " route add default via " + nodeIP)
	for _, a := range []string{worldDNS, metadata, public} {
		ip("-n " + c.world + " addr add " + a + "/32 dev lo")
	}
}

// keepTunables sets back what the kubelet sets of the kernel's, and the directory that it makes.
func (c *cluster) keepTunables(t *testing.T) {
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		if b, err := os.ReadFile("/proc/sys/" + name); err == nil {
			t.Cleanup(func() { _ = os.WriteFile("/proc/sys/"+name, b, 0) })
		}
	}
	if _, err := os.Stat("/var/log/containers"); err != nil {
		t.Cleanup(func() { _ = os.Remove("/var/log/containers") })
	}
}

// group makes the control group of all pods, in each hierarchy.
func (c *cluster) group(t *testing.T) {
	t.Helper()
	for _, dir := range c.groups() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of version 1, where they don't follow the parent's
			if b, err := os.ReadFile(dir + "/../" + file); err == nil {
				_ = os.WriteFile(dir+"/"+file, b, 0)
			}
		}
		// As much as ten processes have beside it: with the weight of one, ten machines take too long to boot on a busy node.
		for file, weight := range map[string]string{"cpu.shares": "10240", "cpu.weight": "1000"} {
			if _, err := os.Stat(dir + "/" + file); err == nil {
				_ = os.WriteFile(dir+"/"+file, []byte(weight), 0)
			}
		}
	}
	t.Cleanup(func() {
		for _, dir := range c.groups() {
			var all []string
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			})
			slices.Reverse(all)
			for _, dir := range all {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func (c *cluster) groups() (all []string) {
	name := filepath.Base(c.dir)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup/" + name}
	}
	hierarchies, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, h := range hierarchies {
		all = append(all, filepath.Dir(h)+"/"+name)
	}
	return all
}

// end ends every pod, and then every program.
func (c *cluster) end(t *testing.T) {
	if t.Failed() {
		for _, program := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-proxy", "etcd"} {
			if b, err := os.ReadFile(c.file(program + ".log")); err == nil {
				t.Logf("%s's log ends with:\n%s", program, b[max(0, len(b)-6<<10):])
			}
		}
	}
	c.halt("kubelet", syscall.SIGTERM)
	c.removePods(t)
	_ = unix.Unmount(c.file("kubelet"), unix.MNT_DETACH)
	for _, program := range []string{"kube-proxy", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		c.halt(program, syscall.SIGKILL)
	}
}

// removePods has containerd end what a test that failed has left.
func (c *cluster) removePods(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	pods, err := c.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, p := range pods.GetItems() {
		if _, err := c.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			t.Error(err)
		}
		if _, err := c.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			t.Error(err)
		}
	}
}

// left is what the node has of pods and of their machines.
func (c *cluster) left(t *testing.T) (all []string) {
	own := []int{os.Getpid()}
	for _, p := range c.programs {
		own = append(own, p.cmd.Process.Pid)
	}
	for _, p := range c.processes() {
		if !slices.Contains(own, p.pid) {
			all = append(all, strconv.Itoa(p.pid)+" "+p.line)
		}
	}
	patterns := []string{home + "/run/*", c.file("s/*"), c.file("state/io.containerd.runtime.v2.task/k8s.io/*"), c.file("kubelet/pods/*"), ofCNI}
	for _, dir := range c.groups() {
		patterns = append(patterns, dir+"/kubepods/pod*", dir+"/kubepods/*/pod*")
	}
	for _, pattern := range patterns {
		names, _ := filepath.Glob(pattern)
		all = append(all, slices.DeleteFunc(names, func(name string) bool { return slices.Contains(c.others, name) })...)
	}
	root := c.file("kubelet") // which the kubelet has made a mount
	return append(all, slices.DeleteFunc(c.mounts(t), func(m string) bool { return m == root })...)
}
