//go:build linux && cgo && amd64

package krun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
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
	// What only libkrun can get wrong; the rest of the suite runs on QEMU and
	// wherever KVM does.
	const inside = "^TestLibkrun$/^(I2_NoNetworkDeviceWithoutNet|FramesFlowBothWays|DisksComeInOrder|DiscardFreesHostSpace|GuestHasAConsoleAndAClock|I8_StartsInTheSmallProgram)$"
	out, exit := emuhost.RunFresh(t, map[string]string{"/krun.test": exe(t), "/vmm": program(t), "/root.ext4": vmtest.Root(t, scratch)},
		100*time.Second, vmtest.RootEnv+"=/root.ext4", vmmtest.Env+"=/vmm", "/krun.test", "-test.v", "-test.timeout=5m", "-test.run="+inside)
	t.Log(out)
	if exit != 0 {
		t.Fatalf("exit code %d in the emulated host", exit)
	}
}

// program is a file with the small program.
func program(t *testing.T) string {
	t.Helper()
	b, err := vmmtest.Read()
	path := filepath.Join(t.TempDir(), "vmm")
	if err = errors.Join(err, os.WriteFile(path, b, 0o700)); err != nil {
		t.Fatal(err)
	}
	return path
}

// startsInTheSmallProgram looks at the VMM's process, which libkrun has taken over.
func startsInTheSmallProgram(t *testing.T, s *vmtest.Suite) {
	for name, b := range map[string]vm.Backend{"/memfd:msb-vmm (deleted)": s.Backend, exe(t): New(Config{CacheDir: scratch})} {
		m, err := b.Start(t.Context(), vmtest.Spec(t, s.Root))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.PID())); err != nil || got != name {
			t.Errorf("the VMM is executed from %s (%v), want %s", got, err, name)
		}
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	}
}

func exe(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// testMachines goes one by one: in an emulated host nothing is gained by more.
func testMachines(t *testing.T) {
	s := &vmtest.Suite{Backend: New(Config{CacheDir: scratch, Program: vmmtest.Program(t)}), Root: vmtest.Root(t, scratch)}
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
		{"I8_StartsInTheSmallProgram", func(t *testing.T) { startsInTheSmallProgram(t, s) }},
		{"I13_KillingTheSupervisorTakesTheVMMAlong", s.KillingTheSupervisorTakesTheVMMAlong},
	} {
		t.Run(test.name, test.run)
	}
}
