//go:build linux && cgo && amd64

package krun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// TestLibkrun boots libkrun for real: here where KVM runs ordinary kernels,
// else by running itself inside an emulated host, one test at a time, since a
// host that stands still takes no other test's result with it then.
func TestLibkrun(t *testing.T) {
	if vm.ProbeKVM() == nil {
		s := &vmtest.Suite{Backend: New(Config{CacheDir: kernelCache(scratch), Program: vmmtest.Program(t)}), Root: vmtest.Root(t, scratch)}
		for _, test := range tests(s) { // one by one: in an emulated host nothing is gained by more
			t.Run(test.name, test.run)
		}
		t.Run(boundTheVMM, func(t *testing.T) {
			cgroupsBoundTheVMM(t, emuhost.NewHosts(t, map[string]string{"/runner.test": cgroupsTest(t)}))
		})
		return
	}
	hosts := emuhost.NewHosts(t, map[string]string{"/krun.test": exe(t), "/vmm": program(t), "/root.ext4": vmtest.Root(t, scratch), "/runner.test": cgroupsTest(t)})
	for _, test := range tests(nil) {
		if test.name == consoleBound {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			out, exit := hosts.Run(t, 4*time.Minute, vmtest.RootEnv+"=/root.ext4", vmmtest.Env+"=/vmm", "/krun.test",
				"-test.v", "-test.timeout=5m", "-test.run=^TestLibkrun$/^"+test.name+"$")
			t.Log(out)
			if exit != 0 || !strings.Contains(out, "--- PASS: TestLibkrun/"+test.name) {
				t.Errorf("exit code %d in the emulated host", exit)
			}
		})
	}
	t.Run(boundTheVMM, func(t *testing.T) { cgroupsBoundTheVMM(t, hosts) })
}

// kernelCache is where a test's machines find their kernel: dir, but in an emulated host, where to make and hash one takes as
// long as to boot a guest, a directory for all processes.
func kernelCache(dir string) string {
	if os.Getenv(emuhost.Env) != "" {
		return "/tmp/kernel"
	}
	return dir
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
	for name, b := range map[string]vm.Backend{"/memfd:msb-vmm (deleted)": s.Backend, exe(t): New(Config{CacheDir: kernelCache(scratch)})} {
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

// guestsSetTheTimersDeadline looks at the feature without which a guest measures its timer at each boot.
func guestsSetTheTimersDeadline(t *testing.T, s *vmtest.Suite) {
	g := vmtest.Boot(t, s.Backend, vmtest.Spec(t, s.Root))
	for line := range strings.Lines(g.Ask(t, "read /proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "flags" && !slices.Contains(strings.Fields(value), "tsc_deadline_timer") {
			t.Errorf("the guest's CPU has no tsc_deadline_timer: %s", value)
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

// consoleBound needs 240,000 exits of the guest, which has its console in pieces of 16 bytes: in an emulated host even what
// fills one of the two files, 68,000, takes more than four minutes. The bound is package runner's, and QEMU's guests test it.
const consoleBound = "ConsoleLogIsBounded"

type machineTest struct {
	name string
	run  func(*testing.T)
}

// tests are those of every backend, and libkrun's own.
func tests(s *vmtest.Suite) []machineTest {
	return []machineTest{
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
		{consoleBound, s.ConsoleLogIsBounded},
		{"GuestsSetTheTimersDeadline", func(t *testing.T) { guestsSetTheTimersDeadline(t, s) }},
		{"I8_StartsInTheSmallProgram", func(t *testing.T) { startsInTheSmallProgram(t, s) }},
		{"I13_KillingTheSupervisorTakesTheVMMAlong", s.KillingTheSupervisorTakesTheVMMAlong},
	}
}
