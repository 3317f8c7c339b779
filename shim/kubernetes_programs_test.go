//go:build containerdtest && kubernetestest

package shim_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func (c *cluster) certify(t *testing.T) {
	t.Helper()
	c.pki = newAuthority(t, c.file("pki"))
	const masters = "system:masters"
	c.pki.issue(t, "server", "kube-apiserver", masters, nodeIP, "127.0.0.1", "10.96.0.1", "kubernetes.default.svc")
	for name, of := range map[string][2]string{
		"admin": {"admin", masters}, "kube-scheduler": {"system:kube-scheduler"}, "kube-controller-manager": {"system:kube-controller-manager"},
		"kube-proxy": {"system:kube-proxy", "system:node-proxier"},
	} {
		c.pki.issue(t, name, of[0], of[1])
		c.pki.kubeconfig(t, name, server)
	}
	c.pki.issue(t, "kubelet", "system:node:node", "system:nodes", nodeIP, "node")
	c.pki.kubeconfig(t, "kubelet", server)
}

// kubeletConfig lets a node of cgroup v1 be, and waits long for slow machines.
func (c *cluster) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]s/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[1]s/pki/kubelet.crt
tlsPrivateKeyFile: %[1]s/pki/kubelet.key
containerRuntimeEndpoint: unix://%[1]s/c.sock
podLogsDir: %[1]s/podlogs
volumePluginDir: %[1]s/plugins
resolvConf: %[1]s/resolv.conf
clusterDNS: [%[3]s]
clusterDomain: cluster.local
cgroupDriver: cgroupfs
cgroupRoot: /%[4]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
registerWithTaints: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
evictionPressureTransitionPeriod: 10s
imageGCHighThresholdPercent: 100
runtimeRequestTimeout: 8m
syncFrequency: 5s
nodeStatusUpdateFrequency: 5s
maxPods: 100
`, c.dir, nodeIP, worldDNS, filepath.Base(c.dir))
}

// arguments are those of each program.
func (c *cluster) arguments(program string) []string {
	pki := c.file("pki") + "/"
	switch program {
	case "etcd":
		return []string{"--data-dir=" + c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn"}
	case "kube-apiserver":
		return []string{
			"--etcd-servers=http://127.0.0.1:2379", "--advertise-address=" + nodeIP, "--client-ca-file=" + pki + "ca.crt", "--tls-cert-file=" + pki + "server.crt", "--tls-private-key-file=" + pki + "server.key",
			"--kubelet-certificate-authority=" + pki + "ca.crt", "--kubelet-client-certificate=" + pki + "server.crt", "--kubelet-client-key=" + pki + "server.key", "--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + pki + "accounts.crt", "--service-account-signing-key-file=" + pki + "accounts.key",
			"--service-cluster-ip-range=" + services, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged", "--etcd-compaction-interval=0",
			"--cert-dir=" + c.file("apiserver"),
		}
	case "kube-controller-manager":
		return []string{
			"--kubeconfig=" + pki + program + ".conf", "--service-account-private-key-file=" + pki + "accounts.key", "--root-ca-file=" + pki + "ca.crt", "--use-service-account-credentials",
			"--leader-elect=false", "--bind-address=127.0.0.1", "--node-monitor-grace-period=5m", "--cert-dir=" + c.file("controllers"), "--authentication-kubeconfig=" + pki + program + ".conf", "--authorization-kubeconfig=" + pki + program + ".conf",
		}
	case "kube-scheduler":
		return []string{"--kubeconfig=" + pki + program + ".conf", "--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir=" + c.file("scheduler")}
	case "kubelet":
		return []string{
			"--config=" + c.file("kubelet.yaml"), "--kubeconfig=" + pki + "kubelet.conf", "--root-dir=" + c.file("kubelet"), "--hostname-override=node", "--node-ip=" + nodeIP,
			"--node-labels=msb.dev/node=true", "--cert-dir=" + c.file("kubelet-pki"), "-v=2",
		}
	case "kube-proxy":
		return []string{"--kubeconfig=" + pki + program + ".conf", "--hostname-override=node", "--proxy-mode=iptables", "--cluster-cidr=10.213.0.0/16", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"}
	case "kube-router":
		return []string{"--kubeconfig=" + pki + "admin.conf", "--hostname-override=node", "--run-firewall", "--run-router=false", "--run-service-proxy=false", "--service-cluster-ip-range=" + services}
	case "agent-sandbox-controller":
		return []string{"--kubeconfig=" + pki + "admin.conf", "--extensions", "--leader-elect=false", "--enable-webhook=false"}
	}
	panic(program)
}

// run starts a program, whose log is DIR/PROGRAM.log.
func (c *cluster) run(t *testing.T, program string) {
	t.Helper()
	log, err := os.OpenFile(c.file(program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	path := filepath.Join(os.Getenv(envKubernetes), program)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(os.Getenv(envAddons), program)
	}
	cmd := inside(c.netns, append([]string{path}, c.arguments(program)...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &running{cmd: cmd, ended: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	c.programs[program] = p
}

// running is a program of the cluster.
type running struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// halt ends a program by a signal.
func (c *cluster) halt(program string, by syscall.Signal) {
	if p := c.programs[program]; p != nil {
		_ = p.cmd.Process.Signal(by)
		<-p.ended
		delete(c.programs, program)
	}
}

// allRun fails the test if a program ended by itself.
func (c *cluster) allRun(t *testing.T) {
	t.Helper()
	for name, p := range c.programs {
		select {
		case <-p.ended:
			t.Fatalf("%s ended: %v", name, p.cmd.ProcessState)
		default:
		}
	}
}
