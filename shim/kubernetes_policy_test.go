//go:build containerdtest && kubernetestest

package shim_test

import (
	"strings"
	"syscall"
	"testing"
)

const networkPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: of-web}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 8080}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: of-shut}
spec:
  podSelector: {matchLabels: {app: shut}}
  policyTypes: [Egress]
`

// testNetworkPolicy: kube-router's policies hold for pods of msb, as server and as client. The twin is the time before they are
// made, when each client is served.
func testNetworkPolicy(t *testing.T, c *cluster) {
	c.run(t, "kube-router")
	t.Cleanup(func() { c.halt("kube-router", syscall.SIGTERM) })
	c.floor(t, "[[egress.allow]]\ncidrs = [\"10.213.7.0/24\"]\nports = [8080]\nprotocol = \"tcp\"\nprivate = true\n")
	s := c.in(t, "networkpolicy")
	s.apply(t, strings.Replace(deployment, "replicas: 2", "replicas: 1", 1))
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout="+slow.String())
	ip := s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}")
	clients := []string{"friend", "other", "shut"}
	for _, name := range clients {
		s.plain(t, name)
	}
	get := func() (out string) {
		for _, name := range clients {
			out += name + " " + s.sh(name, "timeout 20 wget -q -O- http://"+ip+":8080/ || echo no").out
		}
		return out
	}
	c.until(t, "every client to be served", func() bool { return get() == "friend first\nother first\nshut first\n" }, func() any { return get() })
	s.apply(t, networkPolicies)
	c.until(t, "the policies to hold", func() bool { return get() == "friend first\nother no\nshut no\n" }, func() any { return get() })
	s.kubectl(t, "delete", "networkpolicy", "of-web")
	c.until(t, "the other policy alone to hold", func() bool { return get() == "friend first\nother first\nshut no\n" }, func() any { return get() })
}
