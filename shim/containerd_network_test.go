//go:build containerdtest

package shim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criNode is a containerd with CRI and a network of CNI's ptp.
func criNode(t *testing.T) (*node, cri.RuntimeServiceClient) {
	t.Helper()
	const forward = "/proc/sys/net/ipv4/ip_forward" // which CNI's plugin sets
	before, err := os.ReadFile(forward)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(forward, before, 0) })
	n := startNode(t)
	n.stop(t)
	if err := os.MkdirAll(n.file("cni"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.write(t, "cni/10.conflist", fmt.Sprintf(`{"cniVersion":"0.4.0","name":"t","plugins":[{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.213.7.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, n.file("ipam")))
	b, err := os.ReadFile(n.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri', ", "", 1)
	n.write(t, "config.toml", text+fmt.Sprintf(`
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '%s'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true # for runc, where the tests may not lower it
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '%s'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb]
runtime_type = 'io.containerd.msb.v1'
sandboxer = 'podsandbox'
pod_annotations = ['msb.dev/*']
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb.options]
ConfigPath = '%s'
`, testImage, n.file("cni"), n.file("shim.toml")))
	n.start(t)
	n.try("-n", "k8s.io", "images", "import", "--local", n.file("image.tar"))
	conn, err := grpc.NewClient("unix://"+n.file("c.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return n, cri.NewRuntimeServiceClient(conn)
}

// TestContainerdNetwork: a pod's ports are reached at the pod's address and from its own localhost, and the guest sees who
// connects. A client that no ingress rule names, or that a rule of iptables in the pod's namespace drops, is refused; its twin
// is let in. Names are resolved by the nameserver of the pod, with its search domains.
func TestContainerdNetwork(t *testing.T) {
	n, r := criNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const allowed, denied, resolver, service = "10.98.0.1", "10.99.0.1", "10.97.0.53", "10.96.0.7"
	serveDNS(t, resolver, map[string]string{"api.shop.svc.cluster.local.": service})
	n.write(t, "floor.toml", `version = 1
[[egress.allow]]
hosts = ["*.shop.svc.cluster.local"]
within = ["10.96.0.0/12"]
ports = [80]
protocol = "tcp"
`)
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u2"}, Hostname: "web", LogDirectory: n.file("logs"),
		DnsConfig: &cri.DNSConfig{Servers: []string{resolver}, Searches: []string{"shop.svc.cluster.local"}, Options: []string{"ndots:5"}},
		Annotations: map[string]string{
			"msb.dev/audit":  "on",
			"msb.dev/policy": "version = 1\n[[egress.allow]]\nhosts = [\"*.shop.svc.cluster.local\"]\nwithin = [\"10.96.0.0/12\"]\nports = [80]\nprotocol = \"tcp\"\n[[ingress.allow]]\nname = \"frontends\"\ncidrs = [\"" + allowed + "/32\"]\n",
		},
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}},
			Resources:       &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
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
	// After the pod, which takes those that the node has before for the node's own.
	nodeAddress(t, allowed)
	nodeAddress(t, denied)
	st, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb.PodSandboxId, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	ip, netns := st.Status.Network.Ip, netnsOf(t, st.Info["info"])
	c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "httpd"}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log",
		Command: []string{"/bin/sh", "-c", "echo all > /tmp/index.html; mkdir /tmp/own; echo own > /tmp/own/index.html; httpd -p 127.0.0.1:8081 -h /tmp/own; exec httpd -f -v -p 8080 -h /tmp"},
		Linux:   &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}})
	if err == nil {
		_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	local := func(port string) string {
		return within(t, netns, func() string { return get("", net.JoinHostPort("127.0.0.1", port)) })
	}
	waitFor(t, "the pod's ports", func() bool { return get("", ip+":8080") == "all\n" && local("8081") == "own\n" })
	for name, got := range map[string]struct{ got, want string }{
		"a client of the rule":       {get(allowed, ip+":8080"), "all\n"},
		"a client of no rule":        {get(denied, ip+":8080"), ""},
		"localhost":                  {local("8080"), "all\n"},
		"another's localhost server": {get(allowed, ip+":8081"), ""},
	} {
		if got.got != got.want {
			t.Errorf("%s gets %q, want %q", name, got.got, got.want)
		}
	}
	// httpd writes a line after its answer, and the line goes through the guest's port and containerd.
	var log []byte
	waitFor(t, "the server's line of the allowed client", func() bool {
		log, _ = os.ReadFile(n.file("logs/c.log"))
		return strings.Contains(string(log), allowed+"]:") || strings.Contains(string(log), allowed+":")
	})
	if strings.Contains(string(log), denied) {
		t.Errorf("the server saw:\n%s", log)
	}
	iptables := func(do string) {
		cmd := exec.Command("nsenter", "--net="+netns, "iptables", do, "INPUT", "-s", allowed, "-p", "tcp", "--dport", "8080", "-j", "REJECT")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	iptables("-I")
	if got := get(allowed, ip+":8080"); got != "" {
		t.Errorf("past a rule of the pod's namespace: %q", got)
	}
	iptables("-D")
	if got := get(allowed, ip+":8080"); got != "all\n" {
		t.Errorf("without that rule: %q", got)
	}
	nodeAddress(t, service)
	l, err := net.Listen("tcp", service+":80")
	if err != nil {
		t.Fatal(err)
	}
	servePage(t, l, "service")
	e, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.ContainerId, Timeout: int64(patience.Seconds()), Cmd: []string{
		"/bin/ask", "http://api/", "http://other/", "http://" + service + "/", "http://10.213.7.1/",
	}})
	if out := string(e.GetStdout()); err != nil || out != "service\nno\nservice\nno\n" {
		t.Errorf("in the guest: %v\n%s%s", err, e.GetStdout(), e.GetStderr())
	}
	records, _ := filepath.Glob(n.file("records/shop_web_*.audit.jsonl"))
	var audit []byte
	for _, path := range records {
		audit, _ = os.ReadFile(path)
	}
	for _, want := range []string{`"kind":"port.flow"`, `"client":"` + allowed, `"rule":"frontends"`, `"client":"` + denied, `"labels":{"namespace":"shop","node":"`, `"pod":"web"`} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the audit log lacks %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", audit)
	}
}

func netnsOf(t *testing.T, info string) string {
	t.Helper()
	var of struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(info), &of); err != nil {
		t.Fatal(err)
	}
	for _, ns := range of.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			return ns.Path
		}
	}
	t.Fatalf("no network namespace in %s", info)
	return ""
}

// nodeAddress gives the node an address until the test ends.
func nodeAddress(t *testing.T, a string) {
	t.Helper()
	if out, err := exec.Command("ip", "addr", "add", a+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "addr", "del", a+"/32", "dev", "lo").Run() })
}

// get is the body of an HTTP answer to a client of an address; "" if there is none.
func get(from, at string) string {
	d := net.Dialer{Timeout: patience / 10}
	if from != "" {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
	}
	c, err := d.Dial("tcp", at)
	if err != nil {
		return ""
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return ""
	}
	b, _ := io.ReadAll(c)
	_, body, _ := strings.Cut(string(b), "\r\n\r\n")
	return body
}

// within calls do in a network namespace.
func within(t *testing.T, netns string, do func() string) string {
	t.Helper()
	ns, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	got := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			got <- err.Error()
			return
		}
		got <- do()
	}()
	return <-got
}

// servePage serves a page until the test ends.
func servePage(t *testing.T, l net.Listener, page string) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page+"\n") })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// serveDNS serves A records at port 53 of an address of the node.
func serveDNS(t *testing.T, at string, records map[string]string) {
	t.Helper()
	nodeAddress(t, at)
	c, err := net.ListenPacket("udp", net.JoinHostPort(at, "53"))
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if a := records[strings.ToLower(q.Question[0].Name)]; a == "" {
			m.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(q.Question[0].Name + " 60 IN A " + a)
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
}
