//go:build linux && cgo && amd64

package krun

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// triedInVain are calls that libkrun makes and does without: it looks which capabilities it has, and has none.
var triedInVain = map[runner.Refused]bool{
	{Number: unix.SYS_PRCTL, Argument: unix.PR_GET_SECUREBITS}: true,
	{Number: unix.SYS_PRCTL, Argument: unix.PR_CAP_AMBIENT}:    true,
}

// TestI8_FullLifeNeedsNoOtherCall traces libkrun where KVM runs ordinary kernels, else in an emulated host.
func TestI8_FullLifeNeedsNoOtherCall(t *testing.T) {
	if vm.ProbeKVM() == nil {
		r := new(runner.Recording)
		s := &vmtest.Suite{Backend: New(Config{CacheDir: scratch, Program: vmmtest.Program(t), record: r}), Root: vmtest.Root(t, scratch)}
		s.NeedsNoOtherCall(t, r, func(c runner.Refused) bool { return triedInVain[c] }, "reboot", "kill")
		return
	}
	if os.Getenv(vmtest.RecordEnv) == "" {
		t.Skip("an emulated host stands still under the recorder every other time: make record-calls")
	}
	out, exit := emuhost.RunFresh(t, map[string]string{"/krun.test": exe(t), "/vmm": program(t), "/root.ext4": vmtest.Root(t, scratch)},
		200*time.Second, vmtest.RootEnv+"=/root.ext4", vmmtest.Env+"=/vmm", vmtest.RecordEnv+"="+os.Getenv(vmtest.RecordEnv), "/krun.test", "-test.v", "-test.timeout=5m", "-test.run=^TestI8_FullLifeNeedsNoOtherCall$")
	t.Log(out)
	if exit != 0 {
		t.Fatalf("exit code %d in the emulated host", exit)
	}
}
