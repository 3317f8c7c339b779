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

// cgroupsTest builds vm/runner's tests, of which an emulated host, whatever this machine's kernel has, runs that of the
// VMM's control group.
func cgroupsTest(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "runner.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-w", "-o", program, "github.com/msb-project/msb/internal/vm/runner")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

const boundTheVMM = "I8_CgroupBoundsTheVMM"

func cgroupsBoundTheVMM(t *testing.T, hosts *emuhost.Hosts) {
	const name = "Test" + boundTheVMM
	out, exit := hosts.Run(t, 200*time.Second, "MSB_TEST_MOUNT_CGROUPS=1", "/runner.test", "-test.v", "-test.timeout=5m", "-test.run=^"+name+"$")
	t.Log(out)
	if exit != 0 || !strings.Contains(out, "--- PASS: "+name) {
		t.Errorf("exit code %d in the emulated host, want that it passed", exit)
	}
}
