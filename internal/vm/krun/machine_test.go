//go:build linux && cgo && amd64

package krun

import (
	"os"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// TestLibkrun boots libkrun for real: here where KVM runs ordinary kernels,
// else by running itself inside an emulated host.
func TestLibkrun(t *testing.T) {
	if vm.ProbeKVM() == nil {
		testMachines(t)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// What only libkrun can get wrong; the rest of the suite runs on QEMU and
	// wherever KVM does.
	const inside = "^TestLibkrun$/^(I2_NoNetworkDeviceWithoutNet|FramesFlowBothWays|DisksComeInOrder|DiscardFreesHostSpace|GuestHasAConsoleAndAClock)$"
	out, exit := emuhost.RunFresh(t, map[string]string{"/krun.test": exe, "/root.ext4": vmtest.Root(t, scratch)},
		100*time.Second, vmtest.RootEnv+"=/root.ext4", "/krun.test", "-test.v", "-test.timeout=5m", "-test.run="+inside)
	t.Log(out)
	if exit != 0 {
		t.Fatalf("exit code %d in the emulated host", exit)
	}
}

// testMachines goes one by one: in an emulated host nothing is gained by more.
func testMachines(t *testing.T) {
	s := &vmtest.Suite{Backend: New(Config{CacheDir: scratch}), Root: vmtest.Root(t, scratch)}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"AgentPortCarriesBytesBothWays", s.AgentPortCarriesBytesBothWays},
		{"DisksComeInOrder", s.DisksComeInOrder},
		{"DiscardFreesHostSpace", s.DiscardFreesHostSpace},
		{"ReadOnlyDiskIsOpenedForReadingOnly", s.ReadOnlyDiskIsOpenedForReadingOnly},
		{"I2_NoNetworkDeviceWithoutNet", s.NoNetworkDeviceWithoutNet},
		{"FramesFlowBothWays", s.FramesFlowBothWays},
		{"NetDescriptorIsTakenOverOnError", s.NetDescriptorIsTakenOverOnError},
		{"HowAMachineEnds", s.HowAMachineEnds},
		{"GuestKernelPanicComesWithTheConsolesTail", s.GuestKernelPanicComesWithTheConsolesTail},
		{"KillEndsTheProcessAndLeavesNoZombie", s.KillEndsTheProcessAndLeavesNoZombie},
		{"KilledByAnotherIsReported", s.KilledByAnotherIsReported},
		{"GuestHasAConsoleAndAClock", s.GuestHasAConsoleAndAClock},
		{"ClockKeepsTime", s.ClockKeepsTime},
		{"ConsoleLogIsBounded", s.ConsoleLogIsBounded},
		{"I13_KillingTheSupervisorTakesTheVMMAlong", s.KillingTheSupervisorTakesTheVMMAlong},
	} {
		t.Run(test.name, test.run)
	}
}
