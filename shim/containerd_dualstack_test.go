//go:build containerdtest

package shim_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const dualStackRule = `[[egress.allow]]
name = "open-PROTOCOL"
cidrs = ["10.98.0.1/32", "fd00:98::1/128"]
ports = [7000]
protocol = "PROTOCOL"
private = true
`

// TestContainerdDualStack: a pod with an IPv4 and an IPv6 address of CNI's serves TCP and UDP at both, and the guest sees who
// asks; what a rule opens, it reaches by both, and its twin, an address of no rule, by neither.
func TestContainerdDualStack(t *testing.T) {
	const forward = "/proc/sys/net/ipv6/conf/all/forwarding" // which CNI's plugin sets
	before, err := os.ReadFile(forward)
	if err != nil {
		t.Skip("the node has no IPv6")
	}
	t.Cleanup(func() { _ = os.WriteFile(forward, before, 0) })
	n, r := criNode(t)
	n.stop(t)
	n.write(t, "cni/10.conflist", fmt.Sprintf(`{"cniVersion":"0.4.0","name":"t","plugins":[{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.213.8.0/24"}],[{"subnet":"fd00:213:8::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}`, n.file("ipam")))
	n.start(t)
	open, shut := []string{"10.98.0.1", "fd00:98::1"}, []string{"10.99.0.1", "fd00:99::1"}
	n.write(t, "floor.toml", "version = 1\n"+strings.ReplaceAll(dualStackRule, "PROTOCOL", "tcp")+strings.ReplaceAll(dualStackRule, "PROTOCOL", "udp"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ns := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "dual", Namespace: "shop", Uid: "u3"}, Hostname: "dual", LogDirectory: n.file("logs"), DnsConfig: &cri.DNSConfig{},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: ns}},
	}
	sb, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "msb"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own may be over
		defer cancel()
		_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId})
		if _, err2 := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil || err2 != nil {
			t.Error(err, err2)
		}
		n.isClean(t)
	}()
	st, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb.PodSandboxId})
	if err != nil || len(st.Status.Network.AdditionalIps) != 1 {
		t.Fatalf("%v, %v", st, err)
	}
	addresses := []string{st.Status.Network.Ip, st.Status.Network.AdditionalIps[0].Ip}
	c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log",
		Command: []string{"/bin/sh", "-c", "echo page > /tmp/index.html; httpd -p 8080 -h /tmp; exec ask serve-udp://:9000"},
		Linux:   &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: ns}},
	}})
	if err == nil {
		_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		waitFor(t, "TCP at "+a, func() bool { return get("", net.JoinHostPort(a, "8080")) == "page\n" })
		waitFor(t, "UDP at "+a, func() bool { own, got := askUDP(net.JoinHostPort(a, "9000")); return got == own+"\n" }, func() any { _, got := askUDP(net.JoinHostPort(a, "9000")); return got })
	}
	// After the pod, which takes those that the node has before for the node's own.
	var asked []string
	for _, a := range slices.Concat(open, shut) {
		serveOwn(t, a)
		at := net.JoinHostPort(a, "7000")
		asked = append(asked, "http://"+at+"/", "udp://"+at)
	}
	e, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.ContainerId, Timeout: int64(patience.Seconds()), Cmd: append([]string{"/bin/ask"}, asked...)})
	want := "TCP\nUDP\nTCP\nUDP\nno\nno\nno\nno\n"
	if err != nil || string(e.Stdout) != want {
		t.Errorf("%q: got %q, %v, want %q\n%s", asked, e.GetStdout(), err, want, e.GetStderr())
	}
}

// askUDP sends a datagram, and returns its own address, without the port, and what came back.
func askUDP(at string) (own, got string) {
	d := net.Dialer{Timeout: patience / 10}
	c, err := d.Dial("udp", at)
	if err != nil {
		return "", err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write([]byte("asked\n"))
	b := make([]byte, 1500)
	k, _ := c.Read(b)
	return c.LocalAddr().(*net.UDPAddr).IP.String(), string(b[:k])
}

// serveOwn gives the node an address, and serves TCP and UDP at its port 7000.
func serveOwn(t *testing.T, address string) {
	t.Helper()
	bits, args := "/32", []string{"dev", "lo"}
	if strings.Contains(address, ":") {
		bits, args = "/128", append(args, "nodad") // at once, not after duplicates were looked for
	}
	if out, err := exec.Command("ip", append([]string{"addr", "add", address + bits}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "addr", "del", address+bits, "dev", "lo").Run() })
	at := net.JoinHostPort(address, "7000")
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	servePage(t, l, "TCP")
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		for b := make([]byte, 1500); ; {
			_, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte("UDP\n"), from)
		}
	}()
}
