//go:build containerdtest

package shim_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerdGuestsResolver: a container writes another resolver into the pod's resolv.conf, which CRI mounts writable, and then asks for
// names. The twin is the file itself, which has the change on the node: a supervisor that followed it would ask the guest's choice
// (TestI6_GuestsDontChooseTheirResolvers). The machine's processes have the OOM score of the container meanwhile.
func TestContainerdGuestsResolver(t *testing.T) {
	n, r := criNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const resolver, attackers, service = "10.97.0.53", "10.95.0.66", "10.96.0.7"
	serveDNS(t, resolver, map[string]string{"api.shop.svc.cluster.local.": service, "late.shop.svc.cluster.local.": service})
	n.write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"*.shop.svc.cluster.local\"]\nwithin = [\"10.96.0.0/12\"]\nports = [80]\nprotocol = \"tcp\"\n")
	own := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u3"}, Hostname: "web", LogDirectory: n.file("logs"),
		DnsConfig: &cri.DNSConfig{Servers: []string{resolver}, Searches: []string{"shop.svc.cluster.local"}, Options: []string{"ndots:5"}},
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: own}, Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
			CgroupParent: "/default",
		},
	}
	sb, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "msb"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId})
		if _, err2 := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil || err2 != nil {
			t.Error(err, err2)
		}
		n.isClean(t)
	}()
	var heard atomic.Int64
	spyDNS(t, attackers, service, &heard)
	c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log", Command: []string{"/bin/sleep", "100000"},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: own}, Resources: &cri.LinuxContainerResources{OomScoreAdj: 900}},
	}})
	if err == nil {
		_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	shim := n.shimPID(t, sb.PodSandboxId)
	for _, p := range n.processes() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid))
		if score := strings.TrimSpace(string(b)); err != nil || (score == "900") != (p.pid != shim) {
			t.Errorf("%d (the shim is %d) %s has the OOM score %s, %v", p.pid, shim, p.line, score, err)
		}
	}
	exec := func(line string) string {
		e, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.ContainerId, Timeout: int64(patience.Seconds()), Cmd: []string{"/bin/sh", "-c", line}})
		return fmt.Sprint(string(e.GetStdout()), string(e.GetStderr()), errText(err))
	}
	if got := exec("nslookup api"); !strings.Contains(got, service) {
		t.Errorf("before: %s", got)
	}
	exec("sed 's/" + resolver + "/" + attackers + "/' /etc/resolv.conf > /tmp/r && cat /tmp/r > /etc/resolv.conf")
	if got := exec("cat /etc/resolv.conf"); !strings.Contains(got, attackers) {
		t.Fatalf("the guest can't write to it: %s", got)
	}
	exec("sleep 8") // longer than the file is followed at
	got := exec("nslookup late; nslookup evil")
	if !strings.Contains(got, service) || heard.Load() > 0 {
		t.Errorf("the guest's resolver was asked %d questions; the guest has\n%s", heard.Load(), got)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// spyDNS answers every question at port 53 of an address of the node, and counts them.
func spyDNS(t *testing.T, at, answer string, heard *atomic.Int64) {
	t.Helper()
	nodeAddress(t, at)
	s := &dns.Server{Addr: at + ":53", Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		heard.Add(1)
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 60 IN A " + answer)
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	})}
	ready := make(chan struct{})
	s.NotifyStartedFunc = func() { close(ready) }
	go func() { _ = s.ListenAndServe() }()
	<-ready
	t.Cleanup(func() { _ = s.Shutdown() })
}

// TestContainerdShimIsKilledWhileItsMachineBoots: nothing is left, though nobody knew the machine's directory yet.
func TestContainerdShimIsKilledWhileItsMachineBoots(t *testing.T) {
	n := startNode(t)
	n.must(t, n.run("msb", "--rm", testImage, "warm", "/bin/true")...) // the caches of a first start are there
	n.isClean(t)
	run, out := n.background(t, n.run("msb", "-d", testImage, "victim", "/bin/sleep", "1000")...)
	waitFor(t, "a machine to boot", func() bool {
		for _, line := range n.lines() {
			if strings.Contains(line, "__vmm") || strings.Contains(line, "qemu-system") {
				return true
			}
		}
		return false
	})
	if n.status("victim") == "RUNNING" {
		t.Fatal("it has booted already")
	}
	if err := syscall.Kill(n.shimPID(t, "victim"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err == nil {
		t.Errorf("it was started: %s", out)
	}
	n.try("tasks", "delete", "victim")
	n.try("containers", "rm", "victim")
	n.isClean(t)
}

// TestContainerdEndlessOutput: an exec whose output nobody reads any more doesn't keep its container from its end.
func TestContainerdEndlessOutput(t *testing.T) {
	n := startNode(t)
	n.must(t, n.run("msb", "-d", testImage, "t", "/bin/sleep", "1000")...)
	exec, out := n.background(t, "tasks", "exec", "--exec-id", "e", "t", "/bin/yes")
	waitFor(t, "the output", func() bool { return strings.Contains(out.String(), "y\n") })
	if err := exec.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = exec.Wait() // it was killed
	began := time.Now()
	n.must(t, "tasks", "kill", "-s", "SIGKILL", "t")
	waitFor(t, "the container to end", func() bool { return n.status("t") == "STOPPED" })
	if took := time.Since(began); took > 40*time.Second { // a minute later the machine would be ended
		t.Errorf("it took %s", took)
	}
	n.try("tasks", "delete", "t")
	n.must(t, "containers", "rm", "t")
	n.isClean(t)
}

// disobedient makes the guest's agent say that it has sent a signal, and keep its figures to itself.
var disobedient = []change{
	{"agentd/containers.go", "\tsig := syscall.Signal(r.GetSignal())\n", "\tsig := syscall.Signal(r.GetSignal())\n\tif sig > 0 {\n\t\treturn &agentpb.SignalContainerResponse{}, nil\n\t}\n"},
	{"agentd/containers.go", "\tvalues := func(name string)", "\t<-make(chan struct{})\n\tvalues := func(name string)"},
}

// TestContainerdGuestThatDoesntObey: its pod can be deleted, and the figures of others are told meanwhile. The twin is the other pod, whose
// agent obeys; it goes on.
func TestContainerdGuestThatDoesntObey(t *testing.T) {
	t.Parallel() // it mostly waits
	n, r := criNode(t)
	n.addRuntime(t, "hostile", disobedient)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	own := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	pods, containers := map[string]string{}, map[string]string{}
	for _, handler := range []string{"hostile", "msb"} {
		pod := &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: handler, Namespace: "shop", Uid: handler}, Hostname: "web", LogDirectory: n.file("logs-" + handler),
			Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: own}},
		}
		sb, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: handler})
		if err != nil {
			t.Fatal(err)
		}
		pods[handler] = sb.PodSandboxId
		c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log", Command: []string{"/bin/sleep", "100000"},
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: own}},
		}})
		if err == nil {
			_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
		}
		if err != nil {
			t.Fatal(err)
		}
		containers[handler] = c.ContainerId
	}
	for range 3 {
		began := time.Now()
		stats, err := r.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
		took := time.Since(began)
		if took > 20*time.Second || err != nil {
			t.Errorf("the node's figures took %s: %v", took, err)
		}
		told := false
		for _, s := range stats.GetStats() {
			told = told || s.Attributes.Id == containers["msb"] && s.Memory.GetUsageBytes().GetValue() > 0
		}
		if !told {
			t.Errorf("another pod's figures are missing: %v", stats)
		}
	}
	began := time.Now()
	_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pods["hostile"]})
	t.Logf("the pod was stopped after %s: %v", time.Since(began).Round(time.Second), err)
	if err != nil {
		t.Error(err)
	}
	if s, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containers["msb"]}); err != nil || s.Status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other pod: %v, %v", s, err)
	}
	if _, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pods["msb"]}); err != nil {
		t.Error(err)
	}
	for _, id := range pods {
		if _, err := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	}
	n.isClean(t)
}
