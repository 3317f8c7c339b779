//go:build containerdtest

package shim_test

import (
	"testing"
)

// TestRuncRuns: the harness itself.
func TestContainerdRunsRunc(t *testing.T) {
	n := startNode(t)
	if out := n.must(t, n.run("runc", "--rm", testImage, "one", "/bin/echo", "hello")...); out != "hello\n" {
		t.Errorf("got %q", out)
	}
}
