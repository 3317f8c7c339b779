//go:build containerdtest && kubernetestest

package shim_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// floor is the node's, of pods that start from now on, until the test's end.
func (c *cluster) floor(t *testing.T, rules string) {
	t.Helper()
	c.write(t, "floor.toml", "version = 1\n"+rules)
	t.Cleanup(func() { c.write(t, "floor.toml", "version = 1\n") })
}

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// serve serves a page in the world outside of the node.
func (c *cluster) serve(t *testing.T, at, page string) {
	t.Helper()
	var l net.Listener
	var err error
	within(t, "/run/netns/"+c.world, func() string { l, err = net.Listen("tcp", at); return "" })
	if err != nil {
		t.Fatal(err)
	}
	servePage(t, l, page)
}

// names is the resolver of the cluster, in place of CoreDNS: it answers with what a test puts into it.
type names struct{ sync.Map }

func (c *cluster) resolve(t *testing.T) *names {
	t.Helper()
	var l net.PacketConn
	var err error
	within(t, "/run/netns/"+c.world, func() string { l, err = net.ListenPacket("udp", worldDNS+":53"); return "" })
	if err != nil {
		t.Fatal(err)
	}
	all := &names{}
	s := &dns.Server{PacketConn: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if a, ok := all.Load(strings.ToLower(q.Question[0].Name)); !ok {
			m.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(fmt.Sprintf("%s 60 IN A %s", q.Question[0].Name, a))
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return all
}

const egressFloor = `
[[egress.allow]]
hosts = ["public.example"]
within = ["0.0.0.0/0"]
ports = [80]
protocol = "http"
[[egress.allow]]
hosts = ["*.svc.cluster.local"]
within = ["10.96.0.0/16"]
ports = [80]
protocol = "tcp"
`

const opened = `
[[egress.allow]]
name = "metadata"
cidrs = ["169.254.169.254/32"]
ports = [80]
protocol = "tcp"
private = true
[[egress.allow]]
name = "API server"
cidrs = ["10.96.0.1/32"]
ports = [443]
protocol = "tcp"
private = true
`

// testEgress: a pod reaches names that the floor allows, a Service by its short name among them, and no others; not the
// metadata address and not the API server. Its twins: a pod under a floor that opens both; and one of runc, for which nothing
// is shut.
func testEgress(t *testing.T, c *cluster) {
	all := c.resolve(t)
	all.Store("public.example.", public)
	all.Store("other.example.", public)
	c.serve(t, public+":80", "public")
	c.serve(t, metadata+":80", "credentials")
	s := c.in(t, "egress")
	s.apply(t, strings.Replace(deployment, "replicas: 2", "replicas: 1", 1))
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout="+slow.String())
	all.Store("web.egress.svc.cluster.local.", s.kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	pod := func(name, floor, yaml string) string {
		c.floor(t, floor)
		s.apply(t, strings.ReplaceAll(yaml, "NAME", name))
		s.ready(t, name)
		const token = "/var/run/secrets/kubernetes.io/serviceaccount"
		r := s.sh(name, "ask http://public.example/ http://other.example/ http://web/ http://"+public+":81/ http://"+metadata+"/"+
			"; export SSL_CERT_FILE="+token+"/ca.crt KEY=$(cat "+token+"/token); ask https://10.96.0.1/api | head -c 21")
		return r.out + r.err
	}
	withToken := strings.Replace(plainPod, "{name: NAME, ", `{name: NAME, annotations: {msb.dev/service-account-token: "on", msb.dev/audit: "on"}, `, 1)
	for _, c := range []struct{ name, floor, yaml, want string }{
		{"shut", egressFloor, withToken, "public\nno\nfirst\nno\nno\nno\n"},
		{"opened", egressFloor + opened, withToken, "public\nno\nfirst\nno\ncredentials\n{\"kind\":\"APIVersions\""},
		{"none", egressFloor, strings.Replace(plainPod, "  runtimeClassName: msb\n", "", 1), "public\npublic\nfirst\nno\ncredentials\n{\"kind\":\"APIVersions\""},
	} {
		if got := pod(c.name, c.floor, c.yaml); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	s.audited(t, "shut")
}

// audited looks at the labels of all lines of a pod's audit log: namespace, pod and node, and the container on lines of its processes.
// One is of a denial.
func (s *space) audited(t *testing.T, pod string) {
	t.Helper()
	_, container, _ := strings.Cut(s.kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}"), "://")
	files, err := filepath.Glob(s.file("records/" + s.name + "_" + pod + "_*.audit.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("audit logs %q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	denied, ran := false, false
	for line := range strings.Lines(string(b)) {
		var e struct {
			Kind, Action string
			Labels       map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		want := map[string]string{"namespace": s.name, "pod": pod, "node": "node"}
		if strings.HasPrefix(e.Kind, "exec.") {
			want["container"], ran = container, true
		}
		if !maps.Equal(e.Labels, want) {
			t.Errorf("%s: labels %v, want %v", e.Kind, e.Labels, want)
		}
		denied = denied || e.Action == "deny"
	}
	if !denied || !ran {
		t.Errorf("no denial or no process in the audit log:\n%s", b)
	}
}
