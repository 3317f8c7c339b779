//go:build containerdtest && kubernetestest

package shim_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// envAddons is what make test-kubernetes sets: the directory of helm and of agent-sandbox.
const envAddons = "MSB_TEST_ADDONS"

// testAgentSandbox: kubernetes-sigs/agent-sandbox runs its sandboxes in microVMs, as deploy/samples has it: those of a warm pool boot
// and wait, and a claim takes one of them, whose place is filled.
func testAgentSandbox(t *testing.T, c *cluster) {
	c.floor(t, "[[egress.allow]]\nhosts = [\"example.com\"]\n")
	crds := filepath.Join(os.Getenv(envAddons), "crds")
	c.kubectl(t, "apply", "--server-side", "-f", crds)
	t.Cleanup(func() { c.kubectl(t, "delete", "-f", crds, "--timeout="+slow.String()) })
	c.kubectl(t, "wait", "--for=condition=Established", "-f", crds, "--timeout="+slow.String())
	c.run(t, "agent-sandbox-controller")
	t.Cleanup(func() { c.halt("agent-sandbox-controller", syscall.SIGTERM) })
	s := c.in(t, "agentsandbox")
	sample, err := os.ReadFile("../deploy/samples/agent-sandbox.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The node has two processors and no registry.
	s.apply(t, strings.NewReplacer("busybox:1.37", "IMAGE\n          imagePullPolicy: Never", `cpu: "1"`, "cpu: 100m", "replicas: 5", "replicas: 2").Replace(string(sample)))
	s.kubectl(t, "wait", "--for=condition=Ready", "sandboxclaim/session", "--timeout="+slow.String())
	running := []string{"get", "pods", "--field-selector=status.phase=Running", "-o", "jsonpath={range .items[*]}{.spec.runtimeClassName} {end}"}
	s.eventually(t, "msb msb msb", running...)
	claimed := s.kubectl(t, "get", "sandboxclaim", "session", "-o", "jsonpath={.status.sandbox.name}")
	s.kubectl(t, "wait", "--for=condition=Ready", "sandbox/"+claimed, "--timeout="+slow.String())
	if r := s.sh(claimed, "uname -r"); r.code != 0 || strings.TrimSpace(r.out) == kernel(t) {
		t.Errorf("in the sandbox %s: %+v", claimed, r)
	}
	s.kubectl(t, "delete", "sandboxclaim", "session", "--timeout="+slow.String())
	s.eventually(t, "msb msb", running...)
}
