//go:build linux && amd64

package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

func backend(t testing.TB) *Backend {
	t.Helper()
	return New(Config{CacheDir: scratch, Program: vmmtest.Program(t)})
}

// suite runs its test beside the others: each has a machine of its own.
func suite(t *testing.T) *vmtest.Suite {
	t.Helper()
	t.Parallel()
	return &vmtest.Suite{Backend: backend(t), Root: vmtest.Root(t, scratch), Serials: true}
}

func suiteSpec(t *testing.T) vm.Spec {
	t.Helper()
	return vmtest.Spec(t, vmtest.Root(t, scratch))
}

func TestAgentPortCarriesBytesBothWays(t *testing.T) { suite(t).AgentPortCarriesBytesBothWays(t) }

func TestDisksComeInOrder(t *testing.T) { suite(t).DisksComeInOrder(t) }

func TestReadOnlyDisksAreOpenedSo(t *testing.T) {
	suite(t).ReadOnlyDiskIsOpenedForReadingOnly(t)
}

// TestLocksOfOtherMachinesHoldUpNoStart: who broke out of a machine may lock what it has open. The twin is a writable disk, whose
// lock keeps two machines from writing to it.
func TestLocksOfOtherMachinesHoldUpNoStart(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{true, false} {
		disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		if err := disk.Truncate(1 << 20); err != nil {
			t.Fatal(err)
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if readOnly {
			lock.Type = unix.F_RDLCK // as with a descriptor for reading only
		}
		if err := unix.FcntlFlock(disk.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
		spec := suiteSpec(t)
		spec.Disks = append(spec.Disks, vm.Disk{Path: disk.Name(), ID: "locked", ReadOnly: readOnly})
		m, err := backend(t).Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Agent().Read(make([]byte, 1))
		if (err == nil) != readOnly {
			t.Errorf("read-only %t: the guest's first word: %v; it ended with: %v", readOnly, err, m.Kill())
		}
		_ = m.Kill() // it may have ended
	}
}

func TestDiscardFreesHostSpace(t *testing.T) { suite(t).DiscardFreesHostSpace(t) }

func TestI2_NoNetworkDeviceWithoutNet(t *testing.T) { suite(t).NoNetworkDeviceWithoutNet(t) }

func TestFramesFlowBothWays(t *testing.T) { suite(t).FramesFlowBothWays(t) }

func TestFailedStartsTakeTheDescriptor(t *testing.T) { suite(t).NetDescriptorIsTakenOverOnError(t) }

func TestHowAMachineEnds(t *testing.T) { suite(t).HowAMachineEnds(t) }

func TestKernelPanicsShowTheConsole(t *testing.T) {
	suite(t).GuestKernelPanicComesWithTheConsolesTail(t)
}

func TestKillLeavesNoZombie(t *testing.T) {
	suite(t).KillEndsTheProcessAndLeavesNoZombie(t)
}

func TestKilledByAnotherIsReported(t *testing.T) { suite(t).KilledByAnotherIsReported(t) }

func TestConsoleLogIsBounded(t *testing.T) { suite(t).ConsoleLogIsBounded(t) }

func TestI13_VMMsDieWithTheirSupervisor(t *testing.T) {
	suite(t).KillingTheSupervisorTakesTheVMMAlong(t)
}
