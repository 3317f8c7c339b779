//go:build containerdtest

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestContainerdKnowsTheRuntime asks the real containerd what it makes of configurations of each version with the drop-in.
func TestContainerdKnowsTheRuntime(t *testing.T) {
	dir := os.Getenv("MSB_TEST_CONTAINERD")
	for name, config := range map[string]string{
		"version 2": containerdConfig,
		"version 3": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.put("/etc/containerd/config.toml", config)
			// containerd has no other root directory: all paths are absolute.
			root := l.Root
			l.Root, l.Prefix, l.Containerd, l.DropIn = "/", filepath.Join(root, l.Prefix), filepath.Join(root, l.Containerd), filepath.Join(root, l.DropIn)
			dump := func() string {
				out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "containerd"), "-c", l.Containerd, "config", "dump").Output()
				l.must(err)
				return string(out)
			}
			before := dump()
			if strings.Contains(before, "runtimes.msb") {
				t.Fatal("known before")
			}
			l.must(l.Install(t.Context()))
			after := dump()
			for _, want := range []string{
				"runtimes.msb]", "runtime_type = 'io.containerd.msb.v1'", "runtime_path = '" + filepath.Join(l.Prefix, "bin", Shim) + "'",
				"sandboxer = 'podsandbox'", "ConfigPath = '" + l.settings() + "'", "runtimes.runc]",
			} {
				if !strings.Contains(after, want) {
					t.Errorf("containerd's configuration lacks %q", want)
				}
			}
			l.must(l.Uninstall(t.Context()))
			if got := dump(); got != before {
				t.Errorf("containerd's configuration is another one after: %s", got)
			}
		})
	}
}
