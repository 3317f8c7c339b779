//go:build containerdtest && kubernetestest

package shim_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// envCoreDNS is what make test-kubernetes sets: the directory of CoreDNS's program.
const envCoreDNS = "MSB_TEST_COREDNS"

const (
	coreDNSImage = "msb.test/coredns:latest"
	clusterDNS   = "10.96.0.10"
)

// coreDNS is what clusters have of it: a Deployment, of pods of runc, and the Service whose address the kubelet gives to pods.
const coreDNS = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
  - {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: NAMESPACE}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns}
data:
  Corefile: |
    .:53 {
      errors
      ready
      kubernetes cluster.local in-addr.arpa ip6.arpa
      cache 30
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns}
spec:
  selector: {matchLabels: {app: coredns}}
  template:
    metadata: {labels: {app: coredns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      volumes: [{name: config, configMap: {name: coredns}}]
      containers:
        - name: coredns
          image: COREDNS
          imagePullPolicy: Never
          args: [-conf, /etc/coredns/Corefile]
          volumeMounts: [{name: config, mountPath: /etc/coredns}]
          readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1, timeoutSeconds: 60}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns}
spec:
  clusterIP: ADDRESS
  selector: {app: coredns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// testCoreDNS: a pod finds Services by the names that CoreDNS has for them, short ones too, where the floor opens these. The twin
// is a pod under a floor that opens the addresses of Services to other names.
func testCoreDNS(t *testing.T, c *cluster) {
	c.importCoreDNS(t)
	config := c.kubeletConfig()
	c.write(t, "kubelet.yaml", strings.Replace(config, "clusterDNS: ["+worldDNS+"]", "clusterDNS: ["+clusterDNS+"]", 1))
	restart := func() { c.halt("kubelet", syscall.SIGTERM); c.run(t, "kubelet") }
	restart()
	t.Cleanup(func() { c.write(t, "kubelet.yaml", config); restart() })
	s := c.in(t, "dns")
	s.apply(t, strings.NewReplacer("NAMESPACE", s.name, "COREDNS", coreDNSImage, "ADDRESS", clusterDNS).Replace(coreDNS))
	t.Cleanup(func() { c.kubectl(t, "delete", "clusterrole,clusterrolebinding", "coredns") })
	s.apply(t, strings.Replace(deployment, "replicas: 2", "replicas: 1", 1))
	for _, d := range []string{"coredns", "web"} {
		s.kubectl(t, "rollout", "status", "deployment/"+d, "--timeout="+slow.String())
	}
	for _, p := range []struct{ name, hosts, want string }{
		{"opened", "*.svc.cluster.local", "first\nfirst\nfirst\nno\nno\n"},
		{"shut", "*.other.example", "no\nno\nno\nno\nno\n"},
	} {
		c.floor(t, strings.ReplaceAll(egressFloor, "*.svc.cluster.local", p.hosts))
		s.plain(t, p.name)
		ask := func() any {
			return s.sh(p.name, "ask http://web/ http://web.dns/ http://web.dns.svc.cluster.local/ http://none/ http://kubernetes.default:443/").out
		}
		c.until(t, p.name+" to get "+p.want, func() bool { return ask() == p.want }, ask)
		if r := s.sh(p.name, "cat /etc/resolv.conf"); !strings.Contains(r.out, "nameserver "+clusterDNS+"\n") || !strings.Contains(r.out, "dns.svc.cluster.local svc.cluster.local cluster.local") {
			t.Errorf("%s: %+v", p.name, r)
		}
	}
}

func (c *cluster) importCoreDNS(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(os.Getenv(envCoreDNS), "coredns"))
	if err != nil {
		t.Fatalf("%v: run make test-kubernetes, which sets %s", err, envCoreDNS)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err = errors.Join(w.WriteHeader(&tar.Header{Name: "coredns", Mode: 0o755, Size: int64(len(program))}), write(w, program), w.Close())
	dir := c.file("coredns-image")
	if err = errors.Join(err, writeImage(dir, dir+".tar", coreDNSImage, v1.Config{Entrypoint: []string{"/coredns"}}, layer.Bytes())); err != nil {
		t.Fatal(err)
	}
	c.must(t, "-n", "k8s.io", "images", "import", "--local", dir+".tar")
}
