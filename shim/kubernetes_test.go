//go:build containerdtest && kubernetestest

package shim_test

import "testing"

// TestKubernetes runs pods of the RuntimeClass msb on a Kubernetes of one node: etcd, API server, controller manager, scheduler,
// kubelet and kube-proxy, with containerd. Each test has its namespace, and leaves nothing on the node.
func TestKubernetes(t *testing.T) {
	c := startCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"Pod", testPod},
		{"Deployment", testDeployment},
		{"Job", testJob},
		{"StatefulSet", testStatefulSet},
		{"Containers", testContainers},
		{"Volumes", testVolumes},
		{"Refusals", testRefusals},
		{"HostPaths", testHostPaths},
		{"Secrets", testSecrets},
		{"Egress", testEgress},
		{"CoreDNS", testCoreDNS},
		{"NetworkPolicy", testNetworkPolicy},
		{"Restarts", testRestarts},
		{"Ten", testTen},
		{"Eviction", testEviction},
		{"Install", testInstall},
		{"Chart", testChart},
		{"AgentSandbox", testAgentSandbox},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}
