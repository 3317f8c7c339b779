//go:build linux && cgo && amd64

package krun

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// TestI8_CgroupsInAnEmulatedHost runs vm/runner's test of the VMM's control group where the kernel has them, whatever
// this machine's own are.
func TestI8_CgroupsInAnEmulatedHost(t *testing.T) {
	program := filepath.Join(t.TempDir(), "runner.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "github.com/msb-project/msb/internal/vm/runner")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const name = "TestI8_CgroupBoundsTheVMM"
	out, exit := emuhost.RunFresh(t, map[string]string{"/runner.test": program}, 200*time.Second,
		"MSB_TEST_MOUNT_CGROUPS=1", "/runner.test", "-test.v", "-test.timeout=5m", "-test.run=^"+name+"$")
	t.Log(out)
	if exit != 0 || !strings.Contains(out, "--- PASS: "+name) {
		t.Errorf("exit code %d in the emulated host, want that it passed", exit)
	}
}
