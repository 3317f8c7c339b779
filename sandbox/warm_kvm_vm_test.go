//go:build vmtest

package sandbox_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// TestI18_VMCopiesOnKVMShareNoIdentity runs TestI18_VMCopiesShareNoIdentity with QEMU on KVM, in an emulated host. Where KVM
// runs ordinary kernels that test has run on it itself. QEMU's emulation of nested guests stalls one boot in about ten, and
// a machine that was not saved in time is booted: that is tried again, and nothing else is.
func TestI18_VMCopiesOnKVMShareNoIdentity(t *testing.T) {
	if vm.ProbeKVM() == nil {
		t.Skip("TestI18_VMCopiesShareNoIdentity runs on KVM here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hosts := emuhost.NewHosts(t, emuhost.WithQEMU(t, map[string]string{"/sandbox.test": self}))
	const attempts = 3
	for i := range attempts {
		out, exit := hosts.Run(t, 4*time.Minute, "/sandbox.test", "-test.v", "-test.timeout=4m", "-test.run=^TestI18_VMCopiesShareNoIdentity$")
		t.Log(out)
		if exit == 0 && strings.Contains(out, "--- PASS: TestI18_VMCopiesShareNoIdentity") {
			return
		}
		if i+1 == attempts || !strings.Contains(out, guestBooted) && !strings.Contains(out, "did not become ready") && !strings.Contains(out, "kernel panicked") {
			t.Fatalf("exit code %d in the emulated host", exit)
		}
		emuhost.Retried(t, "copies on KVM")
	}
}
